/*
 * liblandfast: files and push regions of a Landfast server, or of any SMB server, and striped stores, from C.
 *
 * Made by cbindgen of crates/capi: do not edit. The guide is docs/c.md.
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */

#ifndef LANDFAST_H
#define LANDFAST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * Characters of a token's text, with the zero at its end.
 */
#define LANDFAST_STORE_TOKEN_SIZE 151

/**
 * The region goes with this client: when its process ends without a word, the store's daemons free it.
 */
#define LANDFAST_STORE_EPHEMERAL 1

/**
 * To read.
 */
#define LANDFAST_READ 1

/**
 * To write.
 */
#define LANDFAST_WRITE 2

/**
 * Make the file if it does not exist.
 */
#define LANDFAST_CREATE 4

/**
 * Empty the file.
 */
#define LANDFAST_TRUNCATE 8

/**
 * Fail if the file exists; with `LANDFAST_CREATE`.
 */
#define LANDFAST_EXCLUSIVE 16

/**
 * Take persistence that the server only emulates: a commit then survives the server's process, not its machine.
 */
#define LANDFAST_MAP_ACCEPT_EMULATED 1

/**
 * Fail with `LANDFAST_STATUS_NO_PUSH` where the server does not push, instead of working over SMB.
 */
#define LANDFAST_MAP_REQUIRE_PUSH 2

/**
 * Dial over the network also where the server is on this host.
 */
#define LANDFAST_MAP_NO_SAME_HOST 4

/**
 * A commit is an RDMA Flush; without the flag it is a message to the server.
 */
#define LANDFAST_REGION_FLUSHES 1

/**
 * Persistence is emulated: a commit does not survive a loss of power.
 */
#define LANDFAST_REGION_EMULATED 2

/**
 * The server has asked for the region back: the next call gives it back and goes on over SMB.
 */
#define LANDFAST_REGION_RECALLED 4

/**
 * An earlier failure broke the region.
 */
#define LANDFAST_REGION_BROKEN 8

/**
 * An RDMA adapter carries the operations.
 */
#define LANDFAST_REGION_ADAPTER 16

/**
 * The server orders atomic writes behind commits by itself: `landfast_region_atomic_write` does not wait.
 */
#define LANDFAST_REGION_ORDERS_ATOMICS 32

/**
 * How a call ended. `landfast_error_text` has the sentence that names the object and the reason.
 */
enum landfast_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * It was done.
   */
  LANDFAST_STATUS_OK = 0,
  /**
   * An argument is no pointer, no UTF-8, no known flag, or out of its bounds.
   */
  LANDFAST_STATUS_BAD_ARGUMENT = 1,
  /**
   * The handle names nothing that this process has open: it was closed, never was one, or is of before a fork.
   */
  LANDFAST_STATUS_BAD_HANDLE = 2,
  /**
   * As many handles of this kind are open as there may be.
   */
  LANDFAST_STATUS_TOO_MANY_HANDLES = 3,
  /**
   * The address is none.
   */
  LANDFAST_STATUS_BAD_URL = 4,
  /**
   * There is no connection to the server, or it is lost.
   */
  LANDFAST_STATUS_CONNECTION = 5,
  /**
   * The server did not admit the user.
   */
  LANDFAST_STATUS_LOGON = 6,
  /**
   * The file, a directory on its path, or the share does not exist.
   */
  LANDFAST_STATUS_NOT_FOUND = 7,
  /**
   * The name exists already.
   */
  LANDFAST_STATUS_EXISTS = 8,
  /**
   * The user lacks the right.
   */
  LANDFAST_STATUS_ACCESS_DENIED = 9,
  /**
   * Another open or lock is in the way.
   */
  LANDFAST_STATUS_IN_USE = 10,
  /**
   * The medium or a quota is full.
   */
  LANDFAST_STATUS_NO_SPACE = 11,
  /**
   * The medium cannot be written.
   */
  LANDFAST_STATUS_READ_ONLY = 12,
  /**
   * The medium failed. What was not committed is not durable, and nothing is tried again.
   */
  LANDFAST_STATUS_MEDIA = 13,
  /**
   * It is a directory.
   */
  LANDFAST_STATUS_IS_DIRECTORY = 14,
  /**
   * It is no directory.
   */
  LANDFAST_STATUS_NOT_DIRECTORY = 15,
  /**
   * The directory is not empty.
   */
  LANDFAST_STATUS_NOT_EMPTY = 16,
  /**
   * The name is none.
   */
  LANDFAST_STATUS_BAD_NAME = 17,
  /**
   * The server does not do this.
   */
  LANDFAST_STATUS_NOT_SUPPORTED = 18,
  /**
   * The server refused for another reason: `landfast_error_ntstatus` has its status.
   */
  LANDFAST_STATUS_REFUSED = 19,
  /**
   * The server broke the protocol, or did not prove itself.
   */
  LANDFAST_STATUS_PROTOCOL = 20,
  /**
   * The range lies outside the region or the file.
   */
  LANDFAST_STATUS_OUT_OF_RANGE = 21,
  /**
   * An atomic write must lie at a multiple of 8.
   */
  LANDFAST_STATUS_MISALIGNED = 22,
  /**
   * More bytes than one operation takes.
   */
  LANDFAST_STATUS_TOO_LONG = 23,
  /**
   * As many operations are submitted as the region takes: wait for one first.
   */
  LANDFAST_STATUS_QUEUE_FULL = 24,
  /**
   * No operation is submitted.
   */
  LANDFAST_STATUS_NOTHING_OUTSTANDING = 25,
  /**
   * The oldest operation has not ended yet.
   */
  LANDFAST_STATUS_NOT_YET = 26,
  /**
   * An earlier failure broke the region: `landfast_region_lost` names the bytes. Map the file again.
   */
  LANDFAST_STATUS_BROKEN = 27,
  /**
   * `LANDFAST_MAP_REQUIRE_PUSH` was asked for, and the server does not push; or push mode has ended.
   */
  LANDFAST_STATUS_NO_PUSH = 28,
  /**
   * This machine gave no thread, memory or random numbers.
   */
  LANDFAST_STATUS_HOST = 29,
  /**
   * A fault of this library; the process is as sound as before. Please report it.
   */
  LANDFAST_STATUS_INTERNAL = 30,
  /**
   * The connection ended during an atomic operation of a store: it took effect or it did not.
   */
  LANDFAST_STATUS_IN_DOUBT = 31,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum landfast_status landfast_status;
#else
typedef int32_t landfast_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The path that the operations of a region take.
 */
enum landfast_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * SMB READ, WRITE and FLUSH.
   */
  LANDFAST_MODE_SMB = 0,
  /**
   * One-sided RDMA.
   */
  LANDFAST_MODE_PUSH = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum landfast_mode landfast_mode;
#else
typedef uint32_t landfast_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a commit survives. Ordered: a server that keeps a class keeps those below it.
 */
enum landfast_class
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Not known: the region works over SMB, and the server says nothing of its medium.
   */
  LANDFAST_CLASS_UNKNOWN = 0,
  /**
   * Memory: gone with power.
   */
  LANDFAST_CLASS_VOLATILE = 1,
  /**
   * A file on a disk file system: durable after the server's fdatasync.
   */
  LANDFAST_CLASS_STORAGE = 2,
  /**
   * Persistent memory: durable after write-back and a fence.
   */
  LANDFAST_CLASS_PMEM = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum landfast_class landfast_class;
#else
typedef uint32_t landfast_class;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A session on one share: `landfast_connect`.
 */
typedef struct {
  /**
   * 0 is no handle.
   */
  uint64_t id;
} landfast_client;

/**
 * An open file: `landfast_open`.
 */
typedef struct {
  /**
   * 0 is no handle.
   */
  uint64_t id;
} landfast_file;

/**
 * What is known of a file.
 */
typedef struct {
  /**
   * Length in bytes.
   */
  uint64_t size;
  /**
   * Bytes reserved on the medium.
   */
  uint64_t allocated;
  /**
   * Creation, in nanoseconds since 1970.
   */
  int64_t created_ns;
  /**
   * Last change of data, in nanoseconds since 1970.
   */
  int64_t modified_ns;
  /**
   * Whether it is a directory: 1 or 0.
   */
  uint32_t is_directory;
  /**
   * 0.
   */
  uint32_t reserved;
} landfast_file_info;

/**
 * One entry of a directory.
 */
typedef struct {
  /**
   * The name, without its directory; it lives until the function returns.
   */
  const char *name;
  /**
   * What is known of the file.
   */
  landfast_file_info info;
} landfast_entry;

/**
 * Called once for each entry of a directory, on the calling thread; anything but 0 ends the listing. May be null, which is
 * an error. The function must return: it must neither throw nor jump out.
 */
typedef int (*landfast_entry_function)(void *user_data, const landfast_entry *entry);

/**
 * How to map a region. `landfast_map_options_init` sets each member to its default.
 */
typedef struct {
  /**
   * `sizeof(landfast_map_options)` of the program, so that later versions may append members.
   */
  size_t struct_size;
  /**
   * `LANDFAST_MAP_` flags; 0.
   */
  uint32_t flags;
  /**
   * The least `landfast_class` that push mode must keep, 0 for any; `LANDFAST_CLASS_STORAGE`. A server that keeps less does
   * not push, and the region works over SMB.
   */
  uint32_t class_min;
  /**
   * Operations submitted and not waited for, 1 to 65536; 256.
   */
  uint32_t outstanding_max;
  /**
   * How long the server may be silent on the push connection, in milliseconds; 30000.
   */
  uint32_t answer_timeout_ms;
  /**
   * Bytes of writes kept until a commit confirms them, 4096 to 1 GiB; 4 MiB. A write that exceeds them commits first.
   */
  uint64_t unconfirmed_bytes;
  /**
   * 0 software over TCP or shared memory, 1 shared memory, 2 an RDMA adapter; 0.
   */
  uint32_t provider;
  /**
   * How a wait waits: 0 adapts, 1 never sleeps, 2 sleeps at once; 0.
   */
  uint32_t polling;
} landfast_map_options;

/**
 * A mapped region of a file: `landfast_map`.
 */
typedef struct {
  /**
   * 0 is no handle.
   */
  uint64_t id;
} landfast_region;

/**
 * What a region is now. It may change with each call: ask again.
 */
typedef struct {
  /**
   * Length in bytes.
   */
  uint64_t size;
  /**
   * The path that operations take.
   */
  landfast_mode mode;
  /**
   * What a commit survives, whatever way it goes; unknown where the server does not say. A file of class volatile without
   * `LANDFAST_REGION_EMULATED` takes no commits.
   */
  landfast_class durability;
  /**
   * `LANDFAST_REGION_` flags.
   */
  uint32_t flags;
  /**
   * Operations submitted and not waited for.
   */
  uint32_t outstanding;
  /**
   * Ranges that `landfast_region_lost` names.
   */
  uint32_t lost;
  /**
   * 0.
   */
  uint32_t reserved;
} landfast_region_info;

/**
 * Bytes that were written and that no commit had confirmed when a region broke.
 */
typedef struct {
  /**
   * Where they begin, from the beginning of the region.
   */
  uint64_t offset;
  /**
   * How many.
   */
  uint64_t len;
} landfast_lost;

/**
 * A mapped region of a striped store: `landfast_store_map`.
 */
typedef struct {
  /**
   * 0 is no handle.
   */
  uint64_t id;
} landfast_store_region;

/**
 * A range of a region, and the memory that it is read into or written from.
 */
typedef struct {
  /**
   * Where the range begins.
   */
  uint64_t offset;
  /**
   * The memory; a write does not change it.
   */
  void *bytes;
  /**
   * How many bytes.
   */
  size_t len;
} landfast_store_span;

/**
 * A submitted operation that has ended.
 */
typedef struct {
  /**
   * The number that the submitting call gave.
   */
  uint64_t ticket;
  /**
   * What the submitting call was given.
   */
  uint64_t user_data;
  /**
   * The number of bytes of a read, 0 for a commit.
   */
  uint64_t value;
  /**
   * How the operation ended; `landfast_error_text` has the reason.
   */
  landfast_status status;
  /**
   * 0.
   */
  uint32_t reserved;
} landfast_completion;

/**
 * A client of a striped store: `landfast_store_open`.
 */
typedef struct {
  /**
   * 0 is no handle.
   */
  uint64_t id;
} landfast_store;

/**
 * What a region is to be like. `landfast_store_allocation_init` sets each member to its default.
 */
typedef struct {
  /**
   * `sizeof(landfast_store_allocation)` of the program, so that later versions may append members.
   */
  size_t struct_size;
  /**
   * `LANDFAST_STORE_EPHEMERAL`, or 0.
   */
  uint32_t flags;
  /**
   * The `landfast_class` of the servers; `LANDFAST_CLASS_STORAGE`.
   */
  uint32_t durability;
  /**
   * Bytes that lie together on one server, a multiple of 8; 1 MiB.
   */
  uint64_t unit;
  /**
   * Pieces; 0: as many as there are servers of the class. 0.
   */
  uint32_t width;
  /**
   * Copies of each byte, 1 to 3, on different servers; 1.
   */
  uint32_t copies;
} landfast_store_allocation;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Connects to a share.
 *
 * `url` is `smb://[USER[:PASSWORD]@]HOST[:PORT]/SHARE`; a path behind the share is ignored. `user` and `password` take the
 * place of those in the URL; null leaves them. A user without a password gets that of the environment variable
 * LANDFAST_PASSWORD. Without a user the session is a guest's.
 *
 * The session has a thread of its own. A process that forks must connect after that.
 *
 * # Safety
 * `url`, `user` and `password` are strings that end with a zero (the latter two may be null); `client` has room for a handle.
 */
landfast_status landfast_connect(const char *url,
                                 const char *user,
                                 const char *password,
                                 landfast_client *client);

/**
 * Ends a session. Its files and regions go on until they are closed, and the connection with the last of them.
 */
landfast_status landfast_disconnect(landfast_client client);

/**
 * Checks that the server answers.
 */
landfast_status landfast_echo(landfast_client client);

/**
 * The sentence of the calling thread's latest failure: which object, and why. It is valid until a further call of this
 * library fails on the same thread. Empty before the first failure; a call that succeeds leaves it as it was.
 */
const char *landfast_error_text(void);

/**
 * The NTSTATUS of the server in the calling thread's latest failure; 0 if the failure was none of the server's.
 */
uint32_t landfast_error_ntstatus(void);

/**
 * The name of a status, such as "LANDFAST_STATUS_OK". Never null.
 */
const char *landfast_status_name(int32_t status);

/**
 * The name of a `landfast_class`: "unknown", "volatile", "storage" or "pmem". Never null.
 */
const char *landfast_class_name(uint32_t class_number);

/**
 * The version of the library, such as "0.1.0".
 */
const char *landfast_version(void);

/**
 * Opens a file of the share. `flags`: `LANDFAST_READ`, `LANDFAST_WRITE`, and with the latter `LANDFAST_CREATE`,
 * `LANDFAST_TRUNCATE` and `LANDFAST_EXCLUSIVE`. Slashes separate the names of `path`.
 *
 * # Safety
 * `path` is a string that ends with a zero; `file` has room for a handle.
 */
landfast_status landfast_open(landfast_client client,
                              const char *path,
                              uint32_t flags,
                              landfast_file *file);

/**
 * Reads up to `len` bytes at `offset`. `got` is the number of bytes: fewer than `len` only at the end of the file.
 *
 * # Safety
 * `buffer` has room for `len` bytes that only this call uses; `got` has room for a number.
 */
landfast_status landfast_read(landfast_file file,
                              uint64_t offset,
                              void *buffer,
                              size_t len,
                              size_t *got);

/**
 * Writes all `len` bytes at `offset`, and makes the file longer where it ends before. Nothing is durable before
 * `landfast_flush`. After a failure any part may have been written.
 *
 * # Safety
 * `bytes` points to `len` bytes that do not change during the call.
 */
landfast_status landfast_write(landfast_file file,
                               uint64_t offset,
                               const void *bytes,
                               size_t len);

/**
 * Returns when every write that was answered before the call is durable, in the class of the server's medium. After a
 * failure it is unknown which of the writes are durable: a further flush says nothing about them.
 */
landfast_status landfast_flush(landfast_file file);

/**
 * The length of an open file, in bytes.
 *
 * # Safety
 * `size` has room for a number.
 */
landfast_status landfast_file_size(landfast_file file, uint64_t *size);

/**
 * Makes a file shorter, or longer by zeros.
 */
landfast_status landfast_set_size(landfast_file file, uint64_t size);

/**
 * Closes a file. It makes nothing durable. While another thread uses the file, it is closed after that use, and what the
 * server says to that is not reported.
 */
landfast_status landfast_close(landfast_file file);

/**
 * What is known of a file or directory.
 *
 * # Safety
 * `path` is a string that ends with a zero; `info` has room for the answer.
 */
landfast_status landfast_stat(landfast_client client, const char *path, landfast_file_info *info);

/**
 * Calls `function` with each entry of a directory, in the server's order; "" is the share itself.
 *
 * # Safety
 * `path` is a string that ends with a zero; `function` does as its type says, with `user_data`.
 */
landfast_status landfast_list(landfast_client client,
                              const char *path,
                              landfast_entry_function function,
                              void *user_data);

/**
 * Makes a directory.
 *
 * # Safety
 * `path` is a string that ends with a zero.
 */
landfast_status landfast_make_directory(landfast_client client, const char *path);

/**
 * Deletes a file, or an empty directory.
 *
 * # Safety
 * `path` is a string that ends with a zero.
 */
landfast_status landfast_remove(landfast_client client, const char *path);

/**
 * Gives a file or directory another path on the same share. `replace`: 1 replaces a file of that name, 0 fails then.
 *
 * # Safety
 * `from` and `to` are strings that end with a zero.
 */
landfast_status landfast_rename(landfast_client client,
                                const char *from,
                                const char *to,
                                uint32_t replace);

/**
 * Sets each member to its default.
 *
 * # Safety
 * `options` has room for the structure.
 */
landfast_status landfast_map_options_init(landfast_map_options *options);

/**
 * Maps `len` bytes at `offset` of a file that is that long: `landfast_set_size` first, mapping makes no file longer. The file
 * is made if it does not exist, which then is too short.
 *
 * If the server does not push, the region works over SMB, and `landfast_region_state` and `landfast_region_describe` say so.
 * The server may recall a region at any time; its calls then go on over SMB, in order, without a lost byte, and the region
 * returns to push mode when the server allows that.
 *
 * `options` may be null for the defaults. One thread at a time uses a region; the calls of others wait.
 *
 * # Safety
 * `path` is a string that ends with a zero; `options` is null or was filled by `landfast_map_options_init`; `region` has room
 * for a handle.
 */
landfast_status landfast_map(landfast_client client,
                             const char *path,
                             uint64_t offset,
                             uint64_t len,
                             const landfast_map_options *options,
                             landfast_region *region);

/**
 * Gives a region back; after the call the server has let go of the file. It commits nothing: what no commit confirmed may or
 * may not be in the file. Submitted operations end without a word, and after the call no destination of a read is written
 * to. While another thread uses the region, all that holds when its call has returned, and what the server says is not
 * reported.
 */
landfast_status landfast_unmap(landfast_region region);

/**
 * Posts a write and returns. The bytes are copied. They are neither visible to others nor durable before a commit that
 * covers them; a read of this region sees them.
 *
 * # Safety
 * `bytes` points to `len` bytes that do not change during the call.
 */
landfast_status landfast_region_write(landfast_region region,
                                      uint64_t offset,
                                      const void *bytes,
                                      size_t len);

/**
 * Returns when everything written before within the range is durable, in the class of `landfast_region_state`.
 */
landfast_status landfast_region_commit(landfast_region region,
                                       uint64_t offset,
                                       uint64_t len);

/**
 * Writes and commits the same bytes in one round trip. A crash before the call returns leaves any mixture of old and new
 * aligned words of 8 bytes.
 *
 * # Safety
 * `bytes` points to `len` bytes that do not change during the call.
 */
landfast_status landfast_region_write_commit(landfast_region region,
                                             uint64_t offset,
                                             const void *bytes,
                                             size_t len);

/**
 * Reads `len` bytes; sees every earlier write of this region.
 *
 * # Safety
 * `buffer` has room for `len` bytes that only this call uses.
 */
landfast_status landfast_region_read(landfast_region region, uint64_t offset, void *buffer, size_t len);

/**
 * Stores eight bytes, little-endian, at a multiple of 8, only if every earlier commit succeeded: for example a pointer to what
 * they committed. The store is not durable by itself: commit it.
 */
landfast_status landfast_region_atomic_write(landfast_region region,
                                             uint64_t offset,
                                             uint64_t value);

/**
 * The CRC-32C of bytes of the region, which the server computes if it can.
 *
 * # Safety
 * `crc` has room for a number.
 */
landfast_status landfast_region_verify(landfast_region region, uint64_t offset, uint32_t len, uint32_t *crc);

/**
 * Gives the region back if the server has recalled it, for a program that makes no other call for longer than half of the
 * server's grace: without it this library gives the region back in the program's name when that half is over.
 */
landfast_status landfast_region_attend(landfast_region region);

/**
 * What the region is now: push mode or SMB, what a commit is worth, recalled or not.
 *
 * # Safety
 * `info` has room for the answer.
 */
landfast_status landfast_region_state(landfast_region region, landfast_region_info *info);

/**
 * The same as a sentence, such as "push by provider soft, class pmem, commit by RDMA Flush", or why the region is not in push
 * mode. Writes at most `len` bytes with the zero at the end; `needed`, if not null, is the length without it.
 *
 * # Safety
 * `buffer` has room for `len` bytes that only this call uses; `needed` is null or has room for a number.
 */
landfast_status landfast_region_describe(landfast_region region,
                                         char *buffer,
                                         size_t len,
                                         size_t *needed);

/**
 * The bytes that were written and that no commit had confirmed when the region broke: they may be durable, in the file, or
 * gone. Writes at most `count_max` ranges; `count` is how many there are.
 *
 * # Safety
 * `ranges` has room for `count_max` structures, or is null with a `count_max` of 0; `count` has room for a number.
 */
landfast_status landfast_region_lost(landfast_region region,
                                     landfast_lost *ranges,
                                     size_t count_max,
                                     size_t *count);

/**
 * Gives a mapping back. Submitted operations end without a word, and after the call no destination of a read is written to;
 * while another thread uses the region, that holds when its call has returned.
 */
landfast_status landfast_store_unmap(landfast_store_region region);

/**
 * The length of a region in bytes.
 *
 * # Safety
 * `size` has room for a number.
 */
landfast_status landfast_store_size(landfast_store_region region, uint64_t *size);

/**
 * Reads `len` bytes of one copy in sync.
 *
 * # Safety
 * `buffer` has room for `len` bytes that only this call uses.
 */
landfast_status landfast_store_read(landfast_store_region region, uint64_t offset, void *buffer, size_t len);

/**
 * Writes; on return the bytes are visible to every client, at every copy in sync. They are durable only by
 * `landfast_store_write_durable` or `landfast_store_commit`.
 *
 * # Safety
 * `bytes` points to `len` bytes that do not change during the call.
 */
landfast_status landfast_store_write(landfast_store_region region,
                                     uint64_t offset,
                                     const void *bytes,
                                     size_t len);

/**
 * Writes; on return the bytes are durable in the region's class, at every copy in sync.
 *
 * # Safety
 * As of `landfast_store_write`.
 */
landfast_status landfast_store_write_durable(landfast_store_region region,
                                             uint64_t offset,
                                             const void *bytes,
                                             size_t len);

/**
 * Makes durable what this client wrote to the range before.
 */
landfast_status landfast_store_commit(landfast_store_region region, uint64_t offset, uint64_t len);

/**
 * Reads several ranges at once, each into the memory of its span. The memories must not overlap.
 *
 * # Safety
 * `spans` points to `count` spans, each with room for as many bytes as it says that only this call uses.
 */
landfast_status landfast_store_read_many(landfast_store_region region,
                                         const landfast_store_span *spans,
                                         size_t count);

/**
 * Writes several ranges at once, in no order among themselves, each from the memory of its span; on return all are visible.
 *
 * # Safety
 * `spans` points to `count` spans, each with as many bytes as it says, which do not change during the call.
 */
landfast_status landfast_store_write_many(landfast_store_region region,
                                          const landfast_store_span *spans,
                                          size_t count);

/**
 * Adds to the little-endian word of 8 bytes at a multiple of 8, atomically, and says what it was. After
 * `LANDFAST_STATUS_IN_DOUBT` nobody knows whether it was added.
 *
 * # Safety
 * `before` has room for a number, or is null.
 */
landfast_status landfast_store_fetch_add(landfast_store_region region,
                                         uint64_t offset,
                                         uint64_t add,
                                         uint64_t *before);

/**
 * Stores `swap` in the word at a multiple of 8 if it is `compare`, atomically, and says what it was: the swap was made if that
 * is `compare`. For regions of one copy (`LANDFAST_STATUS_NOT_SUPPORTED`).
 *
 * # Safety
 * `before` has room for a number.
 */
landfast_status landfast_store_compare_swap(landfast_store_region region,
                                            uint64_t offset,
                                            uint64_t compare,
                                            uint64_t swap,
                                            uint64_t *before);

/**
 * Adds to a counter of the region by which clients wake each other, and says its new value. A counter begins at 0 and lives as
 * long as the daemon that keeps it.
 *
 * # Safety
 * `count` has room for a number, or is null.
 */
landfast_status landfast_store_notify(landfast_store_region region,
                                      uint32_t channel,
                                      uint64_t add,
                                      uint64_t *count);

/**
 * Waits until a counter is above `seen`, and says its value; `LANDFAST_STATUS_NOT_YET` after `timeout_ms`.
 *
 * # Safety
 * `count` has room for a number, or is null.
 */
landfast_status landfast_store_wait_above(landfast_store_region region,
                                          uint32_t channel,
                                          uint64_t seen,
                                          uint32_t timeout_ms,
                                          uint64_t *count);

/**
 * Submits a read. The memory belongs to the library until `landfast_store_wait` reports the read or the region is unmapped.
 * `ticket` may be null.
 *
 * # Safety
 * `buffer` has room for `len` bytes that only the library uses until then; `ticket` has room for a number, or is null.
 */
landfast_status landfast_store_submit_read(landfast_store_region region,
                                           uint64_t offset,
                                           void *buffer,
                                           size_t len,
                                           uint64_t user_data,
                                           uint64_t *ticket);

/**
 * Submits a write, whose bytes are copied; with `durable` other than 0 it ends when they are durable. Operations that are on
 * their way together have no order.
 *
 * # Safety
 * `bytes` points to `len` bytes that do not change during the call; `ticket` has room for a number, or is null.
 */
landfast_status landfast_store_submit_write(landfast_store_region region,
                                            uint64_t offset,
                                            const void *bytes,
                                            size_t len,
                                            uint32_t durable,
                                            uint64_t user_data,
                                            uint64_t *ticket);

/**
 * The next submitted operation that has ended, in the order of their ends; waits for `timeout_ms` at most, and then
 * returns `LANDFAST_STATUS_NOT_YET`. How the operation ended is `completion->status`.
 *
 * # Safety
 * `completion` has room for the structure.
 */
landfast_status landfast_store_wait(landfast_store_region region,
                                    uint32_t timeout_ms,
                                    landfast_completion *completion);

/**
 * Opens a striped store (docs/store.md).
 *
 * `place` is where its metadata is: a directory of this machine, or `etcd://HOST:PORT[,HOST:PORT...]/NAME`. `key_file` is the
 * file of the store's key; null takes the file `key` of the metadata's directory, and an empty text no key at all: then regions
 * are mapped by tokens, and none is made or freed.
 *
 * The store has threads of its own. A process that forks must open it after that.
 *
 * # Safety
 * `place` and `key_file` are strings that end with a zero (the latter may be null); `store` has room for a handle.
 */
landfast_status landfast_store_open(const char *place,
                                    const char *key_file,
                                    landfast_store *store);

/**
 * Ends a client of a store. Its mapped regions go on until they are unmapped.
 */
landfast_status landfast_store_close(landfast_store store);

/**
 * Sets each member to its default.
 *
 * # Safety
 * `allocation` has room for the structure.
 */
landfast_status landfast_store_allocation_init(landfast_store_allocation *allocation);

/**
 * Makes a region of `size` zeros. `allocation` may be null for the defaults.
 *
 * # Safety
 * `name` is a string that ends with a zero; `allocation` is null or was filled by `landfast_store_allocation_init`.
 */
landfast_status landfast_store_allocate(landfast_store store,
                                        const char *name,
                                        uint64_t size,
                                        const landfast_store_allocation *allocation);

/**
 * Removes a region. Mappings of it end.
 *
 * # Safety
 * `name` is a string that ends with a zero.
 */
landfast_status landfast_store_free(landfast_store store, const char *name);

/**
 * Maps a region to read (`LANDFAST_READ`) or also to write (`LANDFAST_READ | LANDFAST_WRITE`). After this no metadata is asked
 * by its reads and writes, until a server is lost. `token` takes the place of the store's key, and its rights that of
 * `flags`; null: the key.
 *
 * # Safety
 * `name` and `token` are strings that end with a zero (the latter may be null); `region` has room for a handle.
 */
landfast_status landfast_store_map(landfast_store store,
                                   const char *name,
                                   uint32_t flags,
                                   const char *token,
                                   landfast_store_region *region);

/**
 * Writes a token into `text`: with it a program without the key maps the region for `seconds` from now, with the rights of
 * `flags` as of `landfast_store_map`. `text` has room for `LANDFAST_STORE_TOKEN_SIZE` characters.
 *
 * # Safety
 * `name` is a string that ends with a zero; `text` has room for as many characters as `room` says.
 */
landfast_status landfast_store_token(landfast_store store,
                                     const char *name,
                                     uint32_t flags,
                                     uint64_t seconds,
                                     char *text,
                                     size_t room);

/**
 * Fills the copies of a region that are missing, and says how many are still missing: too few servers, or too little room.
 * Daemons do it by themselves some seconds after a loss.
 *
 * # Safety
 * `name` is a string that ends with a zero; `missing` has room for a number, or is null.
 */
landfast_status landfast_store_rebuild(landfast_store store,
                                       const char *name,
                                       uint32_t *missing);

/**
 * Posts a write and its commit. `landfast_region_wait` reports when the bytes are durable, with `user_data`. The bytes are
 * copied. `ticket`, if not null, is the number of the operation.
 *
 * # Safety
 * `bytes` points to `len` bytes that do not change during the call; `ticket` is null or has room for a number.
 */
landfast_status landfast_region_submit_write_commit(landfast_region region,
                                                    uint64_t offset,
                                                    const void *bytes,
                                                    size_t len,
                                                    uint64_t user_data,
                                                    uint64_t *ticket);

/**
 * Posts a commit of what was written before within the range.
 *
 * # Safety
 * `ticket` is null or has room for a number.
 */
landfast_status landfast_region_submit_commit(landfast_region region,
                                              uint64_t offset,
                                              uint64_t len,
                                              uint64_t user_data,
                                              uint64_t *ticket);

/**
 * Posts a read of at most 1 MiB. The bytes are in `buffer` when `landfast_region_wait` or `landfast_region_poll` reports the
 * operation: until then, or until the region is unmapped, the buffer is this library's.
 *
 * # Safety
 * `buffer` has room for `len` bytes, which nobody else uses and which are not freed before the operation is reported or the
 * region is unmapped; `ticket` is null or has room for a number.
 */
landfast_status landfast_region_submit_read(landfast_region region,
                                            uint64_t offset,
                                            void *buffer,
                                            uint32_t len,
                                            uint64_t user_data,
                                            uint64_t *ticket);

/**
 * Waits for the oldest submitted operation, `timeout_ms` at most; -1 waits for ever. The operation's own outcome is in
 * `completion->status`; the call itself returns `LANDFAST_STATUS_NOT_YET` when the time is over, and
 * `LANDFAST_STATUS_NOTHING_OUTSTANDING` without a submitted operation.
 *
 * # Safety
 * `completion` has room for the answer.
 */
landfast_status landfast_region_wait(landfast_region region,
                                     int32_t timeout_ms,
                                     landfast_completion *completion);

/**
 * `landfast_region_wait` that returns at once.
 *
 * # Safety
 * `completion` has room for the answer.
 */
landfast_status landfast_region_poll(landfast_region region, landfast_completion *completion);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LANDFAST_H */
