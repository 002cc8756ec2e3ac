/* Stands in for mbschd: loads a scheduler plugin and goes through sessions with it, as lines on stdin say.
 *
 *   host NAME          another candidate host, in one of two groups
 *   job NUMBER TEXT    another request, with a text after -extsched
 *   session            prints for each request the hosts that are left and the reasons that were set, then "."
 *   sleep MS
 *   end
 */
#define _GNU_SOURCE
#include "lssched_facts.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 2000

struct INT_Host { char name[80]; };
struct INT_RsrcReq { char *texts[2]; char key[100]; void *data; long number; };

static struct INT_Host hosts[MOST];
static struct INT_RsrcReq requests[MOST];
static int host_count, request_count, reasons[2];
static RsrcReqHandlerType handler;
static struct candHostGroup groups[2], *next_group;

int extsched_resreq_registerhandler(int id, RsrcReqHandlerType *given)
{
    if (id < 100 || id > 199)
        return -1;
    handler = *given;
    return 0;
}

char **extsched_resreq_getextresreq(INT_RsrcReq *request, int *count)
{
    *count = request->texts[0] ? 1 : 0;
    return request->texts[0] ? request->texts : NULL;
}

void extsched_resreq_setobject(INT_RsrcReq *request, int id, char *key, void *data)
{
    (void)id;
    snprintf(request->key, sizeof request->key, "%s", key);
    request->data = data;
}

struct candHostGroup *extsched_cand_getnextgroup(void *list)
{
    struct candHostGroup *found = list ? list : next_group;
    next_group = found ? found->forw : NULL;
    return found;
}

struct hostSlot *extsched_cand_getavailslot(struct candHost *host)
{
    struct hostSlot *made = calloc(1, sizeof *made);
    made->candHost = host;
    made->name = host->hostPtr->name;
    made->nslotAvail = made->ncpus = 8;
    return made;
}

void extsched_cand_removehost(struct candHostGroup *group, int index)
{
    if (index < 0 || index >= group->numOfMembers)
        abort();
    memmove(group->candHost + index, group->candHost + index + 1, sizeof(struct candHost) * (size_t)(group->numOfMembers - index - 1));
    group->numOfMembers--;
}

int extsched_reason_set(void *table, struct candHost *host, int reason)
{
    if (table != reasons || !host->hostPtr || reason < 20001 || reason > 25000)
        abort();
    reasons[reason != 20001]++;
    return 0;
}

void ls_syslog(int level, char *format, ...)
{
    va_list given;
    (void)level;
    va_start(given, format);
    printf("log: ");
    vprintf(format, given);
    printf("\n");
    va_end(given);
}

static void candidates(struct INT_RsrcReq *request)
{
    for (int g = 0; g < 2; g++) {
        groups[g] = (struct candHostGroup){g ? NULL : &groups[1], g ? &groups[0] : NULL, 0, 0, malloc(sizeof(struct candHost) * MOST)};
        for (int k = g; k < host_count; k += 2)
            groups[g].candHost[groups[g].numOfMembers++] = (struct candHost){k, &hosts[k]};
        groups[g].maxOfMembers = groups[g].numOfMembers;
    }
    reasons[0] = reasons[1] = 0;
    if (request->data && handler.matchFn && handler.matchFn(request->data, groups, reasons))
        abort();
    printf("%ld %d %d", request->number, reasons[0], reasons[1]);
    for (int g = 0; g < 2; g++) {
        for (int k = 0; k < groups[g].numOfMembers; k++)
            printf(" %s", groups[g].candHost[k].hostPtr->name);
        free(groups[g].candHost);
    }
    printf("\n");
}

static int (*phase(void *plugin, const char *name))(void *)
{
    int (*found)(void *);
    *(void **)&found = dlsym(plugin, name);
    if (!found)
        fprintf(stderr, "%s is missing\n", name), exit(2);
    return found;
}

int main(int count, char **words)
{
    static char line[1000];
    void *plugin = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (!plugin)
        return fprintf(stderr, "%s\n", dlerror()), 2;
    if (phase(plugin, "sched_version")(NULL) || phase(plugin, "sched_init")(NULL))
        return 2;
    while (fgets(line, sizeof line, stdin)) {
        char *rest = line + strcspn(line, " \n"), *end = line + strcspn(line, "\n");
        *end = 0;
        if (rest < end)
            *rest++ = 0;
        if (!strcmp(line, "host"))
            snprintf(hosts[host_count++].name, sizeof hosts[0].name, "%s", rest);
        else if (!strcmp(line, "job")) {
            struct INT_RsrcReq *made = &requests[request_count++];
            made->number = strtol(rest, &rest, 10);
            made->texts[0] = *rest ? strdup(rest + 1) : NULL;
            handler.newFn(made);
        } else if (!strcmp(line, "sleep")) {
            long ms = atol(rest);
            nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
        } else if (!strcmp(line, "session")) {
            phase(plugin, "sched_pre_proc")(NULL);
            phase(plugin, "sched_match_limit")(NULL);
            for (int k = 0; k < request_count; k++)
                candidates(&requests[k]);
            phase(plugin, "sched_order_alloc")(NULL);
            phase(plugin, "sched_post_proc")(NULL);
            printf(".\n");
        } else
            break;
        fflush(stdout);
    }
    for (int k = 0; k < request_count; k++) {
        if (requests[k].data)
            handler.freeFn(requests[k].data);
        free(requests[k].texts[0]);
    }
    phase(plugin, "sched_finalize")(NULL);
    return 0;
}
