/* Loaded before the C library: the wall clock is ahead by what a shared file says, a number of nanoseconds. All other clocks,
   and all that waits by them, stay as they are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static volatile int64_t *ahead;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HAWSER_LAB_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
        ahead = found == MAP_FAILED ? NULL : found;
        close(file);
    }
}

int clock_gettime(clockid_t which, struct timespec *now) {
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(which, now);
    if (!answer && ahead && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t shown = now->tv_sec * SECOND + now->tv_nsec + *ahead;
        now->tv_sec = shown / SECOND;
        now->tv_nsec = shown % SECOND;
    }
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec shown;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &shown);
    now->tv_sec = shown.tv_sec;
    now->tv_usec = shown.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec shown;
    clock_gettime(CLOCK_REALTIME, &shown);
    if (now)
        *now = shown.tv_sec;
    return shown.tv_sec;
}
