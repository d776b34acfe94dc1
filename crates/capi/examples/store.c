/*
 * A striped store from C: the example of docs/c.md.
 *
 *   landfast store serve /tmp/store/a --meta /tmp/store/meta --name a &
 *   cc store.c $(pkg-config --cflags --libs landfast) -o store
 *   ./store /tmp/store/meta
 */
#include <landfast.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(landfast_status status, const char *what)
{
    if (status != LANDFAST_STATUS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, landfast_status_name(status), landfast_error_text());
        exit(1);
    }
}

/* What is refused, with the text; anything else ends the program. */
static void refused(landfast_status status, landfast_status wanted)
{
    if (status != wanted) {
        fprintf(stderr, "%s instead of %s\n", landfast_status_name(status), landfast_status_name(wanted));
        exit(1);
    }
    printf("refused: %s: %s\n", landfast_status_name(status), landfast_error_text());
}

static void use_vectors(landfast_store_region region)
{
    char one[] = "one", two[] = "two", got[2][4] = {"", ""};
    landfast_store_span writes[] = {{4096, one, sizeof one}, {1 << 20, two, sizeof two}};
    landfast_store_span reads[] = {{4096, got[0], 4}, {1 << 20, got[1], 4}};
    landfast_store_span twice[] = {{0, got[0], 4}, {8, got[0] + 2, 4}};

    check(landfast_store_write_many(region, writes, 2), "write_many"); /* visible to every client */
    check(landfast_store_read_many(region, reads, 2), "read_many");
    printf("vectors: %s %s\n", got[0], got[1]);
    refused(landfast_store_read_many(region, twice, 2), LANDFAST_STATUS_BAD_ARGUMENT);
}

static void use_words(landfast_store_region region)
{
    uint64_t before, count;

    check(landfast_store_fetch_add(region, 0, 5, &before), "fetch_add");
    check(landfast_store_compare_swap(region, 0, before + 5, 9, &before), "compare_swap");
    printf("words: it was %" PRIu64 "\n", before);
    refused(landfast_store_fetch_add(region, 4, 1, &before), LANDFAST_STATUS_MISALIGNED);
    check(landfast_store_notify(region, 0, 1, &count), "notify");
    check(landfast_store_wait_above(region, 0, 0, 1000, &count), "wait_above");
    refused(landfast_store_wait_above(region, 0, count, 1, NULL), LANDFAST_STATUS_NOT_YET);
}

/* Many operations on their way at once; they end in any order. */
static void use_queue(landfast_store_region region)
{
    char block[512], back[512];
    landfast_completion done;

    for (uint64_t i = 0; i < 8; i++) {
        memset(block, (int)('a' + i), sizeof block); /* the bytes are copied */
        check(landfast_store_submit_write(region, 8192 + i * 512, block, sizeof block, 0, i, NULL), "submit_write");
    }
    for (uint64_t i = 0; i < 8; i++) {
        check(landfast_store_wait(region, 10000, &done), "wait");
        check(done.status, "write");
    }
    /* The memory of a submitted read is the library's until the read is reported. */
    check(landfast_store_submit_read(region, 8192 + 7 * 512, back, sizeof back, 77, NULL), "submit_read");
    check(landfast_store_wait(region, 10000, &done), "wait");
    check(done.status, "read");
    printf("queue: %" PRIu64 " bytes of '%c', user data %" PRIu64 "\n", done.value, back[0], done.user_data);
    refused(landfast_store_wait(region, 10, &done), LANDFAST_STATUS_NOTHING_OUTSTANDING);
}

/* A program without the store's key. */
static void use_token(const char *place, const char *name, const char *token)
{
    landfast_store stranger;
    landfast_store_region region;
    char got[4] = "";

    check(landfast_store_open(place, "", &stranger), "open without the key");
    refused(landfast_store_map(stranger, name, LANDFAST_READ, NULL, &region), LANDFAST_STATUS_ACCESS_DENIED);
    check(landfast_store_map(stranger, name, LANDFAST_READ, token, &region), "map by a token");
    check(landfast_store_read(region, 4096, got, 4), "read");
    printf("token: %s\n", got);
    refused(landfast_store_write(region, 0, got, 4), LANDFAST_STATUS_ACCESS_DENIED);
    refused(landfast_store_free(stranger, name), LANDFAST_STATUS_ACCESS_DENIED);
    check(landfast_store_unmap(region), "unmap");
    check(landfast_store_close(stranger), "close");
}

int main(int argc, char **argv)
{
    const char *place = argc > 1 ? argv[1] : "/tmp/store/meta";
    landfast_store store;
    landfast_store_region region;
    landfast_store_allocation allocation;
    char token[LANDFAST_STORE_TOKEN_SIZE];
    uint64_t size;

    refused(landfast_store_open("/no/such/store", NULL, &store), LANDFAST_STATUS_NOT_FOUND);
    refused(landfast_store_open(NULL, NULL, &store), LANDFAST_STATUS_BAD_ARGUMENT);
    check(landfast_store_open(place, NULL, &store), "open");
    check(landfast_store_allocation_init(&allocation), "allocation_init");
    allocation.unit = 4096;
    if (argc > 2 && strcmp(argv[2], "--volatile") == 0)
        allocation.durability = LANDFAST_CLASS_VOLATILE;
    check(landfast_store_allocate(store, "example", 4 << 20, &allocation), "allocate");
    refused(landfast_store_allocate(store, "example", 4 << 20, &allocation), LANDFAST_STATUS_EXISTS);
    check(landfast_store_map(store, "example", LANDFAST_READ | LANDFAST_WRITE, NULL, &region), "map");
    check(landfast_store_size(region, &size), "size");
    printf("mapped: %" PRIu64 " bytes\n", size);
    use_vectors(region);
    use_words(region);
    use_queue(region);
    check(landfast_store_token(store, "example", LANDFAST_READ, 60, token, sizeof token), "token");
    refused(landfast_store_token(store, "example", LANDFAST_READ, 60, token, 10), LANDFAST_STATUS_BAD_ARGUMENT);
    check(landfast_store_token(store, "example", LANDFAST_READ, 60, token, sizeof token), "token");
    use_token(place, "example", token);
    refused(landfast_store_read(region, size - 1, token, 2), LANDFAST_STATUS_OUT_OF_RANGE);
    check(landfast_store_unmap(region), "unmap");
    refused(landfast_store_unmap(region), LANDFAST_STATUS_BAD_HANDLE); /* a handle that is closed is no crash */
    refused(landfast_store_read(region, 0, token, 1), LANDFAST_STATUS_BAD_HANDLE);
    check(landfast_store_free(store, "example"), "free");
    check(landfast_store_close(store), "close");
    refused(landfast_store_close(store), LANDFAST_STATUS_BAD_HANDLE);
    puts("done");
    return 0;
}
