/* The file in which gpuyard publishes decisions, version 1. All numbers are little-endian; there are no gaps.
 *
 *   offset  size  is
 *        0     8  "gpuyard" and a NUL
 *        8     4  version, 1
 *       12     4  length of this head, 80
 *       16     8  length of the file
 *       24     8  number of the publication; grows
 *       32     8  heartbeat: ms since 1970, when it was published
 *       40     4  ms after which it is stale
 *       44     4  ms for which a job that is not named is kept, since it may be too new
 *       48     4  ms for which any job is kept, at most
 *       52     4  hosts
 *       56     4  jobs
 *       60     4  places
 *       64     4  checksum: CRC-32 as in zlib, of the whole file with zeros in its stead
 *       68    12  0
 *       80        hosts of 64 bytes each: a name and NULs
 *                 jobs of 16 bytes each, ascending: number (8), first place (4), places (4); no places: it waits
 *                 places of 4 bytes each: the number of a host
 *
 * It is written beside and renamed into its place, so that a reader sees an old one or a new one, and nothing in between.
 */
#ifndef GPUYARD_DECISIONS_H
#define GPUYARD_DECISIONS_H

#include <stddef.h>
#include <stdint.h>

#define GY_VERSION 1u
#define GY_HEAD 80u
#define GY_HOST 64u
#define GY_JOB 16u
#define GY_PLACE 4u
#define GY_MOST_BYTES (4u << 20)
#define GY_MOST_STALE_MS 600000u
#define GY_MOST_NEW_MS 600000u
#define GY_MOST_KEPT_MS 86400000u

enum gy_verdict { GY_FRESH, GY_ABSENT, GY_FOREIGN, GY_MALFORMED, GY_STALE, GY_AHEAD };

struct gy_decisions {
    unsigned char *data; /* of GY_MOST_BYTES, allocated once */
    size_t bytes;
    uint64_t number;
    int64_t heartbeat_ms;
    uint32_t stale_ms, new_ms, kept_ms;
    uint32_t hosts, jobs, places;
    enum gy_verdict verdict;
};

/* Read the file again. Opens, reads and checks; waits for nothing and nobody. */
enum gy_verdict gy_read(struct gy_decisions *d, const char *path, int64_t now_ms);

/* Whether what was read last still holds. */
enum gy_verdict gy_holds(const struct gy_decisions *d, int64_t now_ms);

/* The places of a job: how many, -1 if it is not named; `first` is set. */
int64_t gy_find(const struct gy_decisions *d, uint64_t job, uint32_t *first);

/* The name of the host at a place. */
const char *gy_host_at(const struct gy_decisions *d, uint32_t place);

#endif
