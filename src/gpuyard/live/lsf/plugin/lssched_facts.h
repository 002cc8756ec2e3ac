/* The part of LSF's interface for scheduler plugins that schmod_gpuyard uses.
 *
 * Written from its documentation: names, arguments and the order of members are facts that a plugin must share with mbschd. With LSF at
 * hand, compile against its own header instead: make LSSCHED=$LSF_TOP/10.1/include/lsf/lssched.h
 */
#ifndef LSSCHED_FACTS_H
#define LSSCHED_FACTS_H

typedef struct INT_RsrcReq INT_RsrcReq; /* mbschd's own; a plugin never looks inside */
typedef struct INT_Host INT_Host;

struct candHost {
    int hostIdx;
    INT_Host *hostPtr;
};

struct candHostGroup {
    struct candHostGroup *forw;
    struct candHostGroup *back;
    int maxOfMembers;
    int numOfMembers;
    struct candHost *candHost;
};

struct hostSlot { /* the plugin frees it */
    struct candHost *candHost;
    char *name;
    int nslotAvail;
    int nslotAlloc;
    int ncpus;
};

typedef int (*RsrcReqHandler_NewFn)(INT_RsrcReq *);
typedef void (*RsrcReqHandler_FreeFn)(void *data);
typedef int (*RsrcReqHandler_MatchFn)(void *data, void *groups, void *reasons);
typedef int (*RsrcReqHandler_SortFn)(void *data, void *groups, void *reasons);
typedef int (*RsrcReqHandler_NotifyAllocFn)(void *data, void *job, void *alloc, void *limits, int flag);
typedef int (*RsrcReqHandler_CheckAllocFn)(void *data, void *job, void *alloc, void *limits);

typedef struct {
    RsrcReqHandler_NewFn newFn;
    RsrcReqHandler_FreeFn freeFn;
    RsrcReqHandler_MatchFn matchFn;
    RsrcReqHandler_SortFn sortFn;
    RsrcReqHandler_NotifyAllocFn notifyAllocFn;
    RsrcReqHandler_CheckAllocFn checkAllocFn;
} RsrcReqHandlerType;

int extsched_resreq_registerhandler(int id, RsrcReqHandlerType *handler);
char **extsched_resreq_getextresreq(INT_RsrcReq *request, int *count);
void extsched_resreq_setobject(INT_RsrcReq *request, int id, char *key, void *data);
struct candHostGroup *extsched_cand_getnextgroup(void *groups); /* NULL: the one after the last */
struct hostSlot *extsched_cand_getavailslot(struct candHost *host);
void extsched_cand_removehost(struct candHostGroup *group, int index);
int extsched_reason_set(void *reasons, struct candHost *host, int reason);
void ls_syslog(int level, char *format, ...);

#endif
