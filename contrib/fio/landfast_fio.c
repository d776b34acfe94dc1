// SPDX-License-Identifier: GPL-2.0-only
/*
 * An I/O engine for fio: a push region of a file on a Landfast server, through liblandfast.
 *
 * This file is built against fio's headers and loaded into fio, so it is under fio's licence (COPYING beside it), unlike the
 * rest of the project, none of which includes or depends on it. README.md beside it says how it is built.
 *
 *   queue: read         -> landfast_region_submit_read          completed by getevents, oldest first
 *          write        -> landfast_region_write                completed at once: posted, not durable
 *          write, sync= -> landfast_region_submit_write_commit  completed by getevents: durable
 *          fsync        -> landfast_region_submit_commit        completed by getevents: durable
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "fio.h"
#include "optgroup.h"

#include <landfast.h>

struct landfast_engine_options {
	void *pad; /* fio takes an option at offset 0 for none */
	char *url;
	unsigned int emulated;
	unsigned int any_path;
	unsigned int network;
	unsigned int polling;
};

static struct fio_option options[] = {
	{
		.name	= "url",
		.lname	= "address of the share",
		.type	= FIO_OPT_STR_STORE,
		.off1	= offsetof(struct landfast_engine_options, url),
		.help	= "smb://USER@HOST:PORT/SHARE; the password in LANDFAST_PASSWORD. filename= is the path below the share",
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= "emulated",
		.lname	= "accept emulated persistence",
		.type	= FIO_OPT_BOOL,
		.off1	= offsetof(struct landfast_engine_options, emulated),
		.def	= "0",
		.help	= "Take any durability class, and persistence that the server only emulates",
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= "any_path",
		.lname	= "measure SMB where the server does not push",
		.type	= FIO_OPT_BOOL,
		.off1	= offsetof(struct landfast_engine_options, any_path),
		.def	= "0",
		.help	= "Without it a job fails where the server does not push",
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= "network",
		.lname	= "network path only",
		.type	= FIO_OPT_BOOL,
		.off1	= offsetof(struct landfast_engine_options, network),
		.def	= "0",
		.help	= "Dial TCP also where the server is on this host, as landfast bench does",
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= "polling",
		.lname	= "how a wait waits",
		.type	= FIO_OPT_INT,
		.off1	= offsetof(struct landfast_engine_options, polling),
		.def	= "0",
		.maxval	= 2,
		.help	= "0 adapts, 1 never sleeps, 2 sleeps at once",
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	{
		.name	= NULL,
	},
};

struct engine_data {
	landfast_region region;
	int is_mapped;
	int commits_writes;
	uint64_t size;
	struct io_u **events;
};

static int told(const char *what)
{
	log_err("landfast: %s: %s\n", what, landfast_error_text());
	return 1;
}

static int connect_for(struct thread_data *td, landfast_client *client)
{
	struct landfast_engine_options *o = td->eo;

	if (!o->url) {
		log_err("landfast: option url is missing: url=smb://USER@HOST:PORT/SHARE\n");
		return 1;
	}
	if (landfast_connect(o->url, NULL, NULL, client) != LANDFAST_STATUS_OK)
		return told("connect");
	return 0;
}

/* Runs before fio forks its jobs: nothing of the library may live on. */
static int engine_setup(struct thread_data *td)
{
	landfast_client client;
	landfast_file file;
	struct fio_file *f;
	uint64_t size = 0;
	int failed = 0;

	if (td->o.nr_files > 1 || !td->files_index) {
		log_err("landfast: a job has one file: filename=PATH, numjobs=N for more\n");
		return 1;
	}
	f = td->files[0];
	if (connect_for(td, &client))
		return 1;
	if (landfast_open(client, f->file_name, LANDFAST_READ | LANDFAST_WRITE | LANDFAST_CREATE, &file) !=
	    LANDFAST_STATUS_OK) {
		failed = told("open");
	} else {
		if (landfast_file_size(file, &size) != LANDFAST_STATUS_OK)
			failed = told("size");
		/* A region lies within its file. */
		if (!failed && size < td->o.size) {
			if (landfast_set_size(file, td->o.size) != LANDFAST_STATUS_OK)
				failed = told("set size");
			size = td->o.size;
		}
		landfast_close(file);
	}
	landfast_disconnect(client);
	if (!failed && !size) {
		log_err("landfast: %s is empty: give size=\n", f->file_name);
		failed = 1;
	}
	f->real_file_size = size;
	return failed;
}

static int engine_init(struct thread_data *td)
{
	struct landfast_engine_options *o = td->eo;
	struct fio_file *f = td->files[0];
	struct engine_data *data;
	landfast_map_options map;
	landfast_client client;
	landfast_status status;
	char text[256];

	data = calloc(1, sizeof(*data));
	if (!data)
		return 1;
	td->io_ops_data = data;
	data->events = calloc(td->o.iodepth + 1, sizeof(*data->events));
	if (!data->events)
		return 1;
	data->commits_writes = td->o.sync_io != 0;
	data->size = f->real_file_size;
	landfast_map_options_init(&map);
	map.outstanding_max = td->o.iodepth + 1;
	map.polling = o->polling;
	if (!o->any_path)
		map.flags |= LANDFAST_MAP_REQUIRE_PUSH;
	if (o->network)
		map.flags |= LANDFAST_MAP_NO_SAME_HOST;
	if (o->emulated) {
		map.class_min = 0;
		map.flags |= LANDFAST_MAP_ACCEPT_EMULATED;
	}
	if (connect_for(td, &client))
		return 1;
	status = landfast_map(client, f->file_name, 0, data->size, &map, &data->region);
	if (status != LANDFAST_STATUS_OK)
		told("map");
	else
		data->is_mapped = 1;
	/* The region keeps the connection. */
	landfast_disconnect(client);
	if (data->is_mapped && landfast_region_describe(data->region, text, sizeof(text), NULL) == LANDFAST_STATUS_OK)
		log_info("landfast: %s: %s\n", f->file_name, text);
	return !data->is_mapped;
}

static void engine_cleanup(struct thread_data *td)
{
	struct engine_data *data = td->io_ops_data;

	if (!data)
		return;
	if (data->is_mapped)
		landfast_unmap(data->region);
	free(data->events);
	free(data);
	td->io_ops_data = NULL;
}

static int errno_of(landfast_status status)
{
	switch (status) {
	case LANDFAST_STATUS_OK:
		return 0;
	case LANDFAST_STATUS_NO_SPACE:
		return ENOSPC;
	case LANDFAST_STATUS_OUT_OF_RANGE:
	case LANDFAST_STATUS_TOO_LONG:
	case LANDFAST_STATUS_BAD_ARGUMENT:
		return EINVAL;
	case LANDFAST_STATUS_ACCESS_DENIED:
		return EACCES;
	case LANDFAST_STATUS_CONNECTION:
		return ENOTCONN;
	default:
		return EIO;
	}
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u)
{
	struct engine_data *data = td->io_ops_data;
	uint64_t user_data = (uintptr_t)io_u;
	landfast_status status;

	fio_ro_check(td, io_u);
	switch (io_u->ddir) {
	case DDIR_READ:
		status = landfast_region_submit_read(data->region, io_u->offset, io_u->xfer_buf, io_u->xfer_buflen,
						     user_data, NULL);
		break;
	case DDIR_WRITE:
		if (!data->commits_writes) {
			status = landfast_region_write(data->region, io_u->offset, io_u->xfer_buf, io_u->xfer_buflen);
			io_u->error = errno_of(status);
			if (io_u->error)
				told("write");
			return FIO_Q_COMPLETED;
		}
		status = landfast_region_submit_write_commit(data->region, io_u->offset, io_u->xfer_buf,
							     io_u->xfer_buflen, user_data, NULL);
		break;
	case DDIR_SYNC:
	case DDIR_DATASYNC:
		status = landfast_region_submit_commit(data->region, 0, data->size, user_data, NULL);
		break;
	default:
		io_u->error = EOPNOTSUPP;
		return FIO_Q_COMPLETED;
	}
	if (status == LANDFAST_STATUS_QUEUE_FULL)
		return FIO_Q_BUSY;
	io_u->error = errno_of(status);
	if (!io_u->error)
		return FIO_Q_QUEUED;
	told("submit");
	return FIO_Q_COMPLETED;
}

static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct engine_data *data = td->io_ops_data;
	int timeout = t ? t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000 : -1;
	landfast_completion done;
	unsigned int count = 0;

	while (count < max && count < td->o.iodepth + 1) {
		landfast_status status;
		struct io_u *io_u;

		status = count < min ? landfast_region_wait(data->region, timeout, &done) :
				       landfast_region_poll(data->region, &done);
		if (status == LANDFAST_STATUS_NOT_YET || status == LANDFAST_STATUS_NOTHING_OUTSTANDING)
			break;
		if (status != LANDFAST_STATUS_OK) {
			told("wait");
			return -EIO;
		}
		io_u = (struct io_u *)(uintptr_t)done.user_data;
		io_u->error = errno_of(done.status);
		if (io_u->error)
			told("operation");
		data->events[count++] = io_u;
	}
	return count;
}

static struct io_u *engine_event(struct thread_data *td, int event)
{
	struct engine_data *data = td->io_ops_data;

	return data->events[event];
}

static int engine_open_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int engine_close_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int engine_get_file_size(struct thread_data *td, struct fio_file *f)
{
	return 0; /* known since setup */
}

/* fio finds an external engine by this name. */
struct ioengine_ops ioengine = {
	.name			= "landfast",
	.version		= FIO_IOOPS_VERSION,
	.flags			= FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL,
	.setup			= engine_setup,
	.init			= engine_init,
	.cleanup		= engine_cleanup,
	.queue			= engine_queue,
	.getevents		= engine_getevents,
	.event			= engine_event,
	.open_file		= engine_open_file,
	.close_file		= engine_close_file,
	.get_file_size		= engine_get_file_size,
	.options		= options,
	.option_struct_size	= sizeof(struct landfast_engine_options),
};
