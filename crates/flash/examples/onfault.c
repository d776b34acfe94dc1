/* What a page costs that the kernel brings (mlock2 with MLOCK_ONFAULT over a mapping of the file) beside one that we bring
 * ourselves (O_DIRECT into memory of our own), in one run, in turns.
 *
 *   cc -O2 -o onfault crates/flash/examples/onfault.c && ./onfault FOLDER
 *
 * Three figures each, median of all rounds: a page that is not in memory; a page that is, copied out; the first store into a
 * page after its write-back. The mapping is locked, so its pages stay; RLIMIT_MEMLOCK must allow that. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16384, TOUCHED = 400, ROUNDS = 5, ALL = TOUCHED * ROUNDS };

/* The compiler leaves no copy out. */
#define DONE(p) __asm__ volatile("" : : "r"(p) : "memory")

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double *figures) {
    qsort(figures, ALL, sizeof *figures, by_size);
    printf("%-52s p50 %8.2f us   p99 %8.2f us\n", name, figures[ALL / 2], figures[ALL * 99 / 100]);
}

static void must(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

int main(int count, char **words) {
    char path[4096], bytes[PAGE], out[PAGE];
    static double mapped[3][ALL], own[3][ALL];
    snprintf(path, sizeof path, "%s/landfast-onfault-%d", count > 1 ? words[1] : "/var/tmp", getpid());
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    must(file >= 0, path);
    int direct = open(path, O_RDWR | O_DIRECT);
    unlink(path);
    must(direct >= 0, "O_DIRECT");
    memset(bytes, 7, PAGE);
    for (int i = 0; i < PAGES; i++)
        must(write(file, bytes, PAGE) == PAGE, "write");
    char *frames = mmap(0, (size_t)TOUCHED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    char *transfer = aligned_alloc(PAGE, PAGE);
    must(frames != MAP_FAILED && transfer, "memory");
    uint64_t random = 88172645463325252ull;
    volatile char sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fsync(file);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        char *map = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        must(map != MAP_FAILED, "mmap");
        must(mlock2(map, (size_t)PAGES * PAGE, MLOCK_ONFAULT) == 0, "mlock2 (is RLIMIT_MEMLOCK large enough?)");
        madvise(map, (size_t)PAGES * PAGE, MADV_RANDOM);
        size_t pages[TOUCHED];
        for (int i = 0; i < TOUCHED; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            pages[i] = random % PAGES;
            int at = round * TOUCHED + i;
            double t0 = now();
            memcpy(out, map + pages[i] * PAGE, PAGE);
            DONE(out);
            double t1 = now();
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            must(pread(direct, transfer, PAGE, random % PAGES * PAGE) == PAGE, "pread");
            memcpy(frames + (size_t)i * PAGE, transfer, PAGE);
            memcpy(out, frames + (size_t)i * PAGE, PAGE);
            DONE(out);
            double t2 = now();
            mapped[0][at] = t1 - t0, own[0][at] = t2 - t1, sum += out[5];
        }
        for (int i = 0; i < TOUCHED; i++) {
            int at = round * TOUCHED + i;
            double t0 = now();
            memcpy(out, map + pages[i] * PAGE, PAGE);
            DONE(out);
            double t1 = now();
            memcpy(out, frames + (size_t)i * PAGE, PAGE);
            DONE(out);
            double t2 = now();
            mapped[1][at] = t1 - t0, own[1][at] = t2 - t1, sum += out[5];
        }
        for (int i = 0; i < TOUCHED; i++)
            map[pages[i] * PAGE] = 1;
        must(msync(map, (size_t)PAGES * PAGE, MS_SYNC) == 0, "msync");
        for (int i = 0; i < TOUCHED; i++) {
            int at = round * TOUCHED + i;
            double t0 = now();
            map[pages[i] * PAGE] = 2;
            DONE(map);
            double t1 = now();
            frames[(size_t)i * PAGE] = 2;
            double t2 = now();
            mapped[2][at] = t1 - t0, own[2][at] = t2 - t1;
        }
        munmap(map, (size_t)PAGES * PAGE);
    }
    report("not in memory: mlock2 ONFAULT, a load", mapped[0]);
    report("not in memory: O_DIRECT pread, copied to a frame", own[0]);
    report("in memory: mlock2 ONFAULT, 4 KiB copied out", mapped[1]);
    report("in memory: own frame, 4 KiB copied out", own[1]);
    report("first store after a write-back: mlock2 ONFAULT", mapped[2]);
    report("first store after a write-back: own frame", own[2]);
    return sum == 99;
}
