/* Reads the file of decisions. Whatever lies there, it neither blocks nor touches memory that is not its own.
 *
 * The file is read, not mapped: a mapping of a file that somebody truncates ends the process with SIGBUS, and that process is the scheduler.
 */
#define _GNU_SOURCE
#include "decisions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef GPUYARD_OWNER
#define GPUYARD_OWNER 0 /* beside the scheduler's own user: who may publish */
#endif

static uint32_t word(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t two_words(const unsigned char *at)
{
    return (uint64_t)word(at) | (uint64_t)word(at + 4) << 32;
}

static uint32_t checksum(const unsigned char *data, size_t bytes)
{
    static uint32_t table[256];
    for (uint32_t k = 0; !table[255] && k < 256; k++) {
        uint32_t sum = k;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
        table[k] = sum;
    }
    uint32_t sum = 0xFFFFFFFFu;
    for (size_t k = 0; k < bytes; k++)
        sum = sum >> 8 ^ table[(sum ^ (k >= 64 && k < 68 ? 0 : data[k])) & 255];
    return ~sum;
}

static const unsigned char *jobs_of(const struct gy_decisions *d)
{
    return d->data + GY_HEAD + (size_t)d->hosts * GY_HOST;
}

static const unsigned char *places_of(const struct gy_decisions *d)
{
    return jobs_of(d) + (size_t)d->jobs * GY_JOB;
}

/* Whether every name ends, jobs ascend, and every number refers to something that is there. */
static int is_sound(const struct gy_decisions *d)
{
    uint64_t last = 0;
    for (uint32_t k = 0; k < d->hosts; k++) {
        const unsigned char *name = d->data + GY_HEAD + (size_t)k * GY_HOST;
        if (!name[0] || name[GY_HOST - 1])
            return 0;
    }
    for (uint32_t k = 0; k < d->jobs; k++) {
        const unsigned char *job = jobs_of(d) + (size_t)k * GY_JOB;
        uint64_t number = two_words(job), end = (uint64_t)word(job + 8) + word(job + 12);
        if (number <= last || end > d->places)
            return 0;
        last = number;
    }
    for (uint32_t k = 0; k < d->places; k++)
        if (word(places_of(d) + (size_t)k * GY_PLACE) >= d->hosts)
            return 0;
    return 1;
}

static enum gy_verdict understand(struct gy_decisions *d)
{
    const unsigned char *at = d->data;
    if (d->bytes < GY_HEAD || memcmp(at, "gpuyard", 8) || word(at + 8) != GY_VERSION || word(at + 12) != GY_HEAD)
        return GY_MALFORMED;
    d->number = two_words(at + 24);
    d->heartbeat_ms = (int64_t)two_words(at + 32);
    d->stale_ms = word(at + 40), d->new_ms = word(at + 44), d->kept_ms = word(at + 48);
    d->hosts = word(at + 52), d->jobs = word(at + 56), d->places = word(at + 60);
    if (two_words(at + 16) != d->bytes || word(at + 68) || two_words(at + 72))
        return GY_MALFORMED;
    if ((uint64_t)GY_HEAD + (uint64_t)d->hosts * GY_HOST + (uint64_t)d->jobs * GY_JOB + (uint64_t)d->places * GY_PLACE != d->bytes)
        return GY_MALFORMED;
    if (d->stale_ms > GY_MOST_STALE_MS || d->new_ms > GY_MOST_NEW_MS || d->kept_ms > GY_MOST_KEPT_MS)
        return GY_MALFORMED;
    if (word(at + 64) != checksum(at, d->bytes) || !is_sound(d))
        return GY_MALFORMED;
    return GY_FRESH;
}

static enum gy_verdict take(struct gy_decisions *d, int file)
{
    struct stat found;
    if (fstat(file, &found) || !S_ISREG(found.st_mode))
        return GY_FOREIGN;
    if ((found.st_uid != geteuid() && found.st_uid != 0 && found.st_uid != (uid_t)GPUYARD_OWNER) || found.st_mode & (S_IWGRP | S_IWOTH))
        return GY_FOREIGN;
    if (found.st_size < (off_t)GY_HEAD || found.st_size > (off_t)GY_MOST_BYTES)
        return GY_MALFORMED;
    while (d->bytes < (size_t)found.st_size) {
        ssize_t got = pread(file, d->data + d->bytes, (size_t)found.st_size - d->bytes, (off_t)d->bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return GY_MALFORMED; /* it was truncated meanwhile */
        d->bytes += (size_t)got;
    }
    return understand(d);
}

enum gy_verdict gy_read(struct gy_decisions *d, const char *path, int64_t now_ms)
{
    d->bytes = 0;
    d->hosts = d->jobs = d->places = 0;
    if (!d->data && !(d->data = malloc(GY_MOST_BYTES)))
        return d->verdict = GY_ABSENT;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY); /* a pipe in its place must not hold us up */
    if (file < 0)
        return d->verdict = errno == ENOENT ? GY_ABSENT : GY_FOREIGN;
    d->verdict = take(d, file);
    close(file);
    return gy_holds(d, now_ms);
}

enum gy_verdict gy_holds(const struct gy_decisions *d, int64_t now_ms)
{
    if (d->verdict != GY_FRESH)
        return d->verdict;
    if (d->heartbeat_ms > now_ms && d->heartbeat_ms - 2000 > now_ms)
        return GY_AHEAD;
    return d->heartbeat_ms < now_ms - (int64_t)d->stale_ms ? GY_STALE : GY_FRESH;
}

int64_t gy_find(const struct gy_decisions *d, uint64_t job, uint32_t *first)
{
    uint32_t low = 0, high = d->jobs;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const unsigned char *at = jobs_of(d) + (size_t)middle * GY_JOB;
        uint64_t number = two_words(at);
        if (number == job) {
            *first = word(at + 8);
            return word(at + 12);
        }
        if (number < job)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

const char *gy_host_at(const struct gy_decisions *d, uint32_t place)
{
    uint32_t host = word(places_of(d) + (size_t)place * GY_PLACE);
    return (const char *)(d->data + GY_HEAD + (size_t)host * GY_HOST);
}
