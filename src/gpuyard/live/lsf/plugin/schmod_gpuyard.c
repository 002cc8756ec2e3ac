/* A plugin of LSF's scheduler: jobs that carry GPUYARD[number] go where gpuyard has decided, or wait while it lets them wait.
 *
 * It reads decisions from a file once per session, and waits for nothing: no socket, no lock, no other process. Where the file is missing,
 * stale, malformed or somebody else's it does nothing, and LSF schedules as if the plugin were not there. A job that gpuyard does not name,
 * or keeps for too long, is LSF's as well. It only takes candidates away: it never gives a job a host that LSF has not found fit.
 */
#define _GNU_SOURCE
#ifdef LSSCHED_HEADER
#include LSSCHED_HEADER
#else
#include "lssched_facts.h"
#endif
#include "decisions.h"

#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#ifndef GPUYARD_DECISIONS
#define GPUYARD_DECISIONS "/run/gpuyard/lsf-decisions"
#endif
#ifndef GPUYARD_HANDLER
#define GPUYARD_HANDLER 117 /* 100 to 199 are for sites */
#endif
#define REASON_WAIT 20001 /* gpuyard lets the job wait */
#define REASON_ELSEWHERE 20002 /* gpuyard has decided for other hosts */

struct tagged { /* what we keep of a job's request */
    uint64_t job;
    int64_t since_ms;
};

static struct gy_decisions decisions = {.verdict = GY_ABSENT};
static const char *path = GPUYARD_DECISIONS;
static enum gy_verdict told = GY_FRESH;

static int64_t clock_ms(clockid_t clock)
{
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Say once what has become of the decisions. */
static void tell(enum gy_verdict verdict)
{
    static char *const words[] = {"are followed", "are not there", "are not a file of ours", "are malformed", "are stale", "lie ahead"};
    if (verdict != told)
        ls_syslog(verdict == GY_FRESH ? LOG_NOTICE : LOG_WARNING, "schmod_gpuyard: decisions %s%s", words[verdict],
                  verdict == GY_FRESH ? "" : ": LSF schedules by itself");
    told = verdict;
}

/* The number in GPUYARD[number], or 0. */
static uint64_t tag_of(const char *text)
{
    uint64_t number = 0;
    const char *at = text ? strstr(text, "GPUYARD[") : NULL;
    if (!at)
        return 0;
    for (at += strlen("GPUYARD["); *at >= '0' && *at <= '9'; at++) {
        if (number > 1000000000000000u)
            return 0;
        number = 10 * number + (uint64_t)(*at - '0');
    }
    return *at == ']' ? number : 0;
}

static int new_request(INT_RsrcReq *request)
{
    int count = 0;
    char **texts = extsched_resreq_getextresreq(request, &count);
    for (int k = 0; texts && k < count; k++) {
        uint64_t job = tag_of(texts[k]);
        struct tagged *made = job ? malloc(sizeof *made) : NULL;
        if (made) {
            char key[32] = "gpuyard-", *end = key + sizeof key - 1;
            uint64_t left = job;
            *end = 0;
            do
                *--end = (char)('0' + left % 10);
            while (left /= 10);
            memmove(key + 8, end, strlen(end) + 1);
            made->job = job;
            made->since_ms = clock_ms(CLOCK_MONOTONIC);
            extsched_resreq_setobject(request, GPUYARD_HANDLER, key, made); /* a key of its own: no other job is its peer */
            return 0;
        }
    }
    return 0;
}

static void free_request(void *data)
{
    free(data);
}

static int is_place(struct candHost *host, uint32_t first, int64_t count)
{
    struct hostSlot *slot = extsched_cand_getavailslot(host);
    int found = 0;
    for (int64_t k = 0; slot && slot->name && !found && k < count; k++)
        found = !strcmp(slot->name, gy_host_at(&decisions, first + (uint32_t)k));
    free(slot);
    return found;
}

static int match(void *data, void *groups, void *reasons)
{
    const struct tagged *job = data;
    uint32_t first = 0;
    if (!job || gy_holds(&decisions, clock_ms(CLOCK_REALTIME)) != GY_FRESH)
        return 0;
    int64_t kept = clock_ms(CLOCK_MONOTONIC) - job->since_ms, count = gy_find(&decisions, job->job, &first);
    if (kept > (int64_t)decisions.kept_ms || (count < 0 && kept > (int64_t)decisions.new_ms))
        return 0;
    for (struct candHostGroup *group = extsched_cand_getnextgroup(groups); group; group = extsched_cand_getnextgroup(NULL))
        for (int k = group->numOfMembers - 1; k >= 0; k--)
            if (count <= 0 || !is_place(&group->candHost[k], first, count)) {
                extsched_reason_set(reasons, &group->candHost[k], count > 0 ? REASON_ELSEWHERE : REASON_WAIT);
                extsched_cand_removehost(group, k);
            }
    return 0;
}

int sched_version(void *unused)
{
    (void)unused;
    return 0;
}

int sched_init(void *unused)
{
    (void)unused;
    static RsrcReqHandlerType handler = {.newFn = new_request, .freeFn = free_request, .matchFn = match};
    const char *given = getenv("GPUYARD_DECISIONS");
    if (given && *given)
        path = given;
    return extsched_resreq_registerhandler(GPUYARD_HANDLER, &handler) < 0 ? -1 : 0;
}

int sched_pre_proc(void *unused)
{
    (void)unused;
    tell(gy_read(&decisions, path, clock_ms(CLOCK_REALTIME)));
    return 0;
}

int sched_match_limit(void *unused)
{
    (void)unused;
    return 0;
}

int sched_order_alloc(void *unused)
{
    (void)unused;
    return 0;
}

int sched_post_proc(void *unused)
{
    (void)unused;
    return 0;
}

int sched_finalize(void *unused)
{
    (void)unused;
    free(decisions.data);
    decisions.data = NULL;
    decisions.verdict = GY_ABSENT;
    return 0;
}
