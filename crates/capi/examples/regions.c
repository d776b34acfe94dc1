/*
 * Files and a push region from C: the example of docs/c.md.
 *
 *   cc regions.c $(pkg-config --cflags --libs landfast) -o regions
 *   LANDFAST_PASSWORD=secret ./regions smb://alice@127.0.0.1:4450/data records.dat
 */
#include <landfast.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every function returns a status; the text names the object and the reason. */
static void check(landfast_status status, const char *what)
{
    if (status != LANDFAST_STATUS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, landfast_status_name(status), landfast_error_text());
        exit(1);
    }
}

/* A file: read and write wherever, durable after flush. */
static void use_file(landfast_client client, const char *path)
{
    landfast_file file;
    size_t got;
    char text[6] = "";

    check(landfast_open(client, path, LANDFAST_READ | LANDFAST_WRITE | LANDFAST_CREATE, &file), "open");
    check(landfast_write(file, 0, "hello", 5), "write");
    check(landfast_flush(file), "flush");
    check(landfast_read(file, 0, text, 5, &got), "read");
    printf("file: %zu bytes, \"%s\"\n", got, text);
    check(landfast_set_size(file, 1 << 20), "set_size"); /* a region lies within its file */
    check(landfast_close(file), "close");
}

/* A record, then a pointer to it that is stored only if the record is durable. */
static void use_region(landfast_region region)
{
    const char record[] = "durable when this returns";
    char text[sizeof record];
    uint32_t crc;

    check(landfast_region_write_commit(region, 4096, record, sizeof record), "write_commit");
    check(landfast_region_atomic_write(region, 0, 4096), "atomic_write");
    check(landfast_region_commit(region, 0, 8), "commit");
    check(landfast_region_read(region, 4096, text, sizeof text), "region_read");
    check(landfast_region_verify(region, 4096, sizeof record, &crc), "verify");
    printf("region: \"%s\", CRC-32C %08" PRIx32 "\n", text, crc);
}

/* Eight commits on their way at once; they end in the order in which they were submitted. */
static void use_queue(landfast_region region)
{
    char block[512];
    landfast_completion done;

    for (uint64_t i = 0; i < 8; i++) {
        memset(block, (int)('a' + i), sizeof block); /* the bytes are copied: the block is free again at once */
        check(landfast_region_submit_write_commit(region, 8192 + i * 512, block, sizeof block, i, NULL),
              "submit_write_commit");
    }
    for (uint64_t i = 0; i < 8; i++) {
        check(landfast_region_wait(region, -1, &done), "wait");
        check(done.status, "commit");
        if (done.user_data != i) {
            fprintf(stderr, "operation %" PRIu64 " ended in place of %" PRIu64 "\n", done.user_data, i);
            exit(1);
        }
    }
    /* The buffer of a submitted read is the library's until the read is reported. */
    check(landfast_region_submit_read(region, 8192 + 7 * 512, block, sizeof block, 0, NULL), "submit_read");
    check(landfast_region_wait(region, 10000, &done), "wait");
    check(done.status, "read");
    printf("queue: %" PRIu64 " bytes of '%c'\n", done.value, block[0]);
}

/* What is refused, and how it is told. */
static void refusals(landfast_client client, landfast_file closed)
{
    size_t got;
    landfast_file none = {0}, file;

    printf("%s\n", landfast_status_name(landfast_read(none, 0, &got, 1, &got)));
    printf("%s\n", landfast_error_text());
    printf("%s\n", landfast_status_name(landfast_close(closed)));
    if (landfast_open(client, "no/such/file", LANDFAST_READ, &file) != LANDFAST_STATUS_NOT_FOUND) {
        exit(1);
    }
    printf("%s (%08" PRIx32 ")\n", landfast_error_text(), landfast_error_ntstatus());
    if (landfast_open(client, NULL, LANDFAST_READ, &file) != LANDFAST_STATUS_BAD_ARGUMENT) {
        exit(1);
    }
    printf("%s\n", landfast_error_text());
}

static int print_entry(void *user_data, const landfast_entry *entry)
{
    printf("%s%s: %" PRIu64 " bytes\n", (const char *)user_data, entry->name, entry->info.size);
    return 0;
}

int main(int argc, char **argv)
{
    landfast_client client;
    landfast_file closed;
    landfast_region region;
    landfast_region_info info;
    landfast_map_options options;
    char text[256];

    if (argc < 3) {
        fprintf(stderr, "usage: %s smb://USER@HOST:PORT/SHARE FILE [--emulated]\n", argv[0]);
        return 2;
    }
    check(landfast_connect(argv[1], NULL, NULL, &client), "connect");
    use_file(client, argv[2]);

    check(landfast_map_options_init(&options), "map_options_init");
    if (argc > 3) {
        options.class_min = 0;
        options.flags |= LANDFAST_MAP_ACCEPT_EMULATED; /* a share in memory, for tests */
    }
    check(landfast_map(client, argv[2], 0, 1 << 20, &options, &region), "map");
    check(landfast_region_describe(region, text, sizeof text, NULL), "describe");
    check(landfast_region_state(region, &info), "region_info");
    printf("mapped: %s; class %s\n", text, landfast_class_name(info.durability));
    use_region(region);
    use_queue(region);
    check(landfast_unmap(region), "unmap");

    check(landfast_open(client, argv[2], LANDFAST_READ, &closed), "open");
    check(landfast_close(closed), "close");
    refusals(client, closed);
    check(landfast_list(client, "", print_entry, "  "), "list");
    check(landfast_remove(client, argv[2]), "remove");
    check(landfast_disconnect(client), "disconnect");
    printf("done\n");
    return 0;
}
