/* The wall clock of a process, moved by as many nanoseconds as the file $CHAOS_CLOCK holds (8 bytes, host order).
 *
 * Preloaded into workers by the chaos run. Only CLOCK_REALTIME moves, as when an operator or ntpd sets the clock:
 * monotonic time, and so every timeout, stays what it is. The file is mapped, so a change is seen at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) offset = found;
    if (file >= 0) close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) begin();
    int failed = real(clock, now);
    if (!failed && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t moved = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *offset;
        now->tv_sec = moved / 1000000000;
        now->tv_nsec = moved % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec at;
    int failed = clock_gettime(CLOCK_REALTIME, &at);
    if (!failed) {
        now->tv_sec = at.tv_sec;
        now->tv_usec = at.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *into) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (into) *into = at.tv_sec;
    return at.tv_sec;
}
