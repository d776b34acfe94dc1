// A peer over the kernel's verbs for crates/siw_peer, which says what the two do to
// each other and what the scenarios mean. The initiator names the scenario in its private data.
//
//     siw_peer ask ADDRESS PORT SCENARIO [COUNT]
//     siw_peer answer PORT                          until it is told "enough", or dies as told
//
// Prints nothing but failures and, to answer, "listening".

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind { ADVERT = 1, SEND, GO, OK, WROTE, TURN, BYE, WATCH, DIE };

// A control message: all numbers most significant byte first.
struct control {
	uint8_t kind;
	uint8_t zero[7];
	uint64_t len;
	uint64_t addr;
	uint32_t key;
	uint32_t secret_key;
	uint64_t secret_addr;
} __attribute__((packed));

enum { SEND_AT = 4 << 20, SINK_AT = 6 << 20, INBOX_AT = 8 << 20, READ_AT = 2 << 20, WRITE_AT = 0 };
enum { MEMORY = 32 << 20, SECRET = 4096, READ_SEED = 77, PATIENCE_S = 30 };
static const uint64_t SIZES[] = { 0, 1, 1423, 1425, 5000, 65539, (1 << 20) + 1 };

// Of the one connection.
static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_pd *pd;
static struct ibv_mr *memory_mr, *secret_mr, *control_mr;
static struct ibv_cq *cq;
static uint8_t *memory, *secret;
// One that arrives, one that leaves.
static struct control *control;
static struct control theirs;
static bool ended;
// From here on the other end may close at any time, and a request that is under way fails.
static bool may_end;
static jmp_buf over;
// A message that was here before the completion of what it answers, and its length.
static bool is_early;
static uint32_t early;
static time_t deadline;

static void fail(const char *format, ...)
{
	va_list values;
	va_start(values, format);
	vfprintf(stderr, format, values);
	fprintf(stderr, " (errno %d: %s)\n", errno, strerror(errno));
	exit(1);
}

static void need(bool holds, const char *what)
{
	if (!holds)
		fail("%s", what);
}

static void die(void)
{
	raise(SIGKILL);
}

static bool is(const char *scenario, const char *name)
{
	return strcmp(scenario, name) == 0;
}

static void patient(void)
{
	if (time(NULL) > deadline)
		fail("nothing happened for %d s", PATIENCE_S);
	sched_yield();
}

static uint8_t pattern(uint64_t at, uint8_t seed)
{
	return (uint8_t)(at % 251) ^ seed;
}

static void fill(uint8_t *bytes, uint64_t len, uint8_t seed)
{
	for (uint64_t at = 0; at < len; at++)
		bytes[at] = pattern(at, seed);
}

static void compare(const uint8_t *bytes, uint64_t len, uint8_t seed, const char *what)
{
	for (uint64_t at = 0; at < len; at++)
		if (bytes[at] != pattern(at, seed))
			fail("%s: byte %llu of %llu is not what it was", what,
			     (unsigned long long)at, (unsigned long long)len);
}

// The next event; without `wait` perhaps none.
static struct rdma_cm_event *next_event(struct rdma_event_channel *of, bool wait)
{
	struct rdma_cm_event *event;
	while (rdma_get_cm_event(of, &event)) {
		need(errno == EAGAIN || errno == EINTR, "rdma_get_cm_event");
		if (!wait)
			return NULL;
		patient();
	}
	return event;
}

static void expect(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(channel, true);
	if (event->event != wanted)
		fail("%s where %s was due, status %d", rdma_event_str(event->event),
		     rdma_event_str(wanted), event->status);
	rdma_ack_cm_event(event);
}

static void see_end(void)
{
	struct rdma_cm_event *event = ended ? NULL : next_event(channel, false);
	if (!event)
		return;
	if (event->event == RDMA_CM_EVENT_DISCONNECTED)
		ended = true;
	else if (event->event != RDMA_CM_EVENT_ESTABLISHED)
		fail("%s", rdma_event_str(event->event));
	rdma_ack_cm_event(event);
}

static void wait_for_end(void)
{
	while (!ended) {
		see_end();
		patient();
	}
}

// Waits for one completion; its status, or -1 when the connection ended and there was none.
static int completion(uint64_t *wr_id, uint32_t *len)
{
	struct ibv_wc wc;
	for (;;) {
		bool over = ended;
		int count = ibv_poll_cq(cq, 1, &wc);
		need(count >= 0, "ibv_poll_cq");
		if (count > 0) {
			*wr_id = wc.wr_id;
			*len = wc.byte_len;
			return wc.status;
		}
		if (over)
			return -1;
		see_end();
		patient();
	}
}

enum { RECV_ID = 1, SEND_ID, WRITE_ID, READ_ID };

// Waits until a request is done, and says how long a received message was.
static uint32_t done(uint64_t wanted)
{
	uint64_t wr_id = 0;
	uint32_t len = 0;
	if (wanted == RECV_ID && is_early) {
		is_early = false;
		return early;
	}
	for (;;) {
		int status = completion(&wr_id, &len);
		if (status && may_end)
			longjmp(over, 1);
		if (status)
			fail("request %llu: %s", (unsigned long long)wr_id,
			     status < 0 ? "the connection ended" : ibv_wc_status_str(status));
		if (wr_id == wanted)
			return len;
		// The answer may be here before the completion of what it answers.
		need(wr_id == RECV_ID && !is_early, "an unexpected completion");
		early = len;
		is_early = true;
	}
}

static void post_recv(struct ibv_mr *mr, void *at, uint64_t len)
{
	struct ibv_sge sge = { (uintptr_t)at, (uint32_t)len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECV_ID, .sg_list = &sge, .num_sge = 1 }, *bad;
	need(!ibv_post_recv(id->qp, &wr, &bad), "ibv_post_recv");
}

static void post_control_recv(void)
{
	post_recv(control_mr, &control[0], sizeof *control);
}

static void post(enum ibv_wr_opcode opcode, uint64_t wr_id, struct ibv_mr *mr, void *at,
		 uint64_t len, uint64_t addr, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)at, (uint32_t)len, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = key;
	need(!ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
}

static void tell(enum kind kind, uint64_t len)
{
	struct control *out = &control[1];
	memset(out, 0, sizeof *out);
	out->kind = kind;
	out->len = htobe64(len);
	if (kind == ADVERT) {
		out->addr = htobe64((uintptr_t)memory);
		out->key = htobe32(memory_mr->rkey);
		out->secret_addr = htobe64((uintptr_t)secret);
		out->secret_key = htobe32(secret_mr->rkey);
	}
	post(IBV_WR_SEND, SEND_ID, control_mr, out, sizeof *out, 0, 0);
	done(SEND_ID);
}

static struct control hear(void)
{
	need(done(RECV_ID) == sizeof *control, "a control message has another length");
	struct control heard = control[0];
	heard.len = be64toh(heard.len);
	heard.addr = be64toh(heard.addr);
	heard.key = be32toh(heard.key);
	heard.secret_addr = be64toh(heard.secret_addr);
	heard.secret_key = be32toh(heard.secret_key);
	return heard;
}

static void hear_only(enum kind kind)
{
	struct control heard = hear();
	if (heard.kind != kind)
		fail("heard %d where %d was due", heard.kind, kind);
	post_control_recv();
}

// Neither end says two things in a row: there is one receive. Where the responder acts first, the
// initiator lets it.
static void introduce(bool asks, bool responder_first)
{
	if (asks)
		tell(ADVERT, 0);
	theirs = hear();
	need(theirs.kind == ADVERT, "no advert");
	post_control_recv();
	if (asks && responder_first)
		tell(GO, 0);
	if (!asks)
		tell(ADVERT, 0);
	if (!asks && responder_first)
		hear_only(GO);
}

// Every operation in every size.
static void act(void)
{
	for (size_t n = 0; n < sizeof SIZES / sizeof *SIZES; n++) {
		uint64_t len = SIZES[n];
		fill(memory + SEND_AT, len, (uint8_t)n);
		tell(SEND, len);
		hear_only(GO);
		post(IBV_WR_SEND, SEND_ID, memory_mr, memory + SEND_AT, len, 0, 0);
		done(SEND_ID);
		hear_only(OK);
		post(IBV_WR_RDMA_WRITE, WRITE_ID, memory_mr, memory + SEND_AT, len,
		     theirs.addr + WRITE_AT, theirs.key);
		done(WRITE_ID);
		tell(WROTE, len);
		hear_only(OK);
		memset(memory + SINK_AT, 0xee, len);
		post(IBV_WR_RDMA_READ, READ_ID, memory_mr, memory + SINK_AT, len,
		     theirs.addr + READ_AT, theirs.key);
		done(READ_ID);
		compare(memory + SINK_AT, len, READ_SEED, "read");
	}
}

// Whoever watches dies as soon as the first byte arrives.
static void watch(void)
{
	volatile uint8_t *first = memory;
	while (*first == 0xee)
		patient();
	die();
}

// Does what the other end needs for its operations; returns what ended that.
static enum kind serve(void)
{
	for (uint8_t seed = 0;;) {
		struct control heard = hear();
		uint64_t len = heard.len;
		switch (heard.kind) {
		case SEND:
			need(len <= MEMORY, "a message too long for this program");
			if (len == MEMORY)
				memory[0] = 0xee;
			uint8_t *at = len == MEMORY ? memory : memory + INBOX_AT;
			post_recv(memory_mr, at, len);
			tell(GO, 0);
			if (len == MEMORY)
				watch();
			need(done(RECV_ID) == len, "a message of another length");
			compare(at, len, seed, "send");
			post_control_recv();
			tell(OK, 0);
			break;
		case WROTE:
			compare(memory + WRITE_AT, len, seed++, "write");
			post_control_recv();
			tell(OK, 0);
			break;
		case WATCH:
			memory[0] = 0xee;
			tell(GO, 0);
			watch();
			break;
		case DIE:
			die();
			break;
		case TURN:
		case BYE:
			post_control_recv();
			return heard.kind;
		default:
			fail("heard %d", heard.kind);
		}
	}
}

// Does what must not be done, and waits for the end of the connection.
static void misbehave(const char *what)
{
	uint64_t len = 64;
	uint8_t *at = memory + SEND_AT;
	if (is(what, "write-key"))
		post(IBV_WR_RDMA_WRITE, WRITE_ID, memory_mr, at, len, theirs.addr, theirs.key ^ 0x00ff0000);
	else if (is(what, "read-key"))
		post(IBV_WR_RDMA_READ, READ_ID, memory_mr, at, len, theirs.addr, theirs.key ^ 0x00ff0000);
	else if (is(what, "write-bounds"))
		post(IBV_WR_RDMA_WRITE, WRITE_ID, memory_mr, at, len, theirs.addr + MEMORY - 63, theirs.key);
	else if (is(what, "read-bounds"))
		post(IBV_WR_RDMA_READ, READ_ID, memory_mr, at, len, theirs.addr + MEMORY - 63, theirs.key);
	else if (is(what, "write-right"))
		post(IBV_WR_RDMA_WRITE, WRITE_ID, memory_mr, at, len, theirs.secret_addr, theirs.secret_key);
	else if (is(what, "read-right"))
		post(IBV_WR_RDMA_READ, READ_ID, memory_mr, at, len, theirs.secret_addr, theirs.secret_key);
	else if (is(what, "send-long"))
		post(IBV_WR_SEND, SEND_ID, memory_mr, at, sizeof *control + 1, 0, 0);
	else if (is(what, "send-none")) {
		// The other end has one receive and posts no other.
		post(IBV_WR_SEND, SEND_ID, memory_mr, at, len / 4, 0, 0);
		post(IBV_WR_SEND, SEND_ID, memory_mr, at, len / 4, 0, 0);
	} else
		fail("no such scenario: %s", what);
	wait_for_end();
	uint64_t wr_id;
	uint32_t seen;
	for (int status; (status = completion(&wr_id, &seen)) >= 0;)
		if (wr_id == READ_ID && status == IBV_WC_SUCCESS)
			fail("a read that must be refused was answered");
}

// Begins something long and dies in the middle of it.
static void die_acting(const char *what)
{
	if (is(what, "send")) {
		tell(SEND, MEMORY);
		hear_only(GO);
		post(IBV_WR_SEND, SEND_ID, memory_mr, memory, MEMORY, 0, 0);
	} else if (is(what, "write")) {
		post(IBV_WR_RDMA_WRITE, WRITE_ID, memory_mr, memory, MEMORY, theirs.addr, theirs.key);
	} else if (is(what, "read")) {
		post(IBV_WR_RDMA_READ, READ_ID, memory_mr, memory, MEMORY, theirs.addr, theirs.key);
	}
	die();
}

static void play(const char *scenario, bool asks)
{
	const char *acting = asks ? "i-" : "r-", *acting_there = asks ? "r-" : "i-";
	if (is(scenario, "die-replied"))
		die();
	may_end = strncmp(scenario, acting_there, 2) == 0 || strstr(scenario, "-crc") ||
		  (!asks && (is(scenario, "hello") || is(scenario, "enough")));
	const char *responds = asks ? "die-h-" : "die-g-";
	introduce(asks, strncmp(scenario, "r-", 2) == 0 || strncmp(scenario, responds, 6) == 0);
	if (is(scenario, "die-idle")) {
		if (!asks)
			need(serve() == TURN, "no turn");
		tell(TURN, 0);
		if (asks)
			need(serve() == TURN, "no turn");
		die();
	} else if (strncmp(scenario, "die-g-", 6) == 0) {
		die_acting(scenario + 6);
	} else if (strncmp(scenario, "die-h-", 6) == 0) {
		serve();
	} else if (strncmp(scenario, acting, 2) == 0) {
		misbehave(scenario + 2);
	} else if (is(scenario, "sound") && asks) {
		act();
		tell(TURN, 0);
		need(serve() == BYE, "no farewell");
	} else if (is(scenario, "sound")) {
		need(serve() == TURN, "no turn");
		act();
		may_end = true;
		tell(BYE, 0);
	}
}

static void session(const char *scenario, bool asks)
{
	bool leaves = asks && strncmp(scenario, "r-", 2) != 0;
	may_end = false;
	if (!setjmp(over))
		play(scenario, asks);
	if (leaves && !ended)
		need(!rdma_disconnect(id), "rdma_disconnect");
	wait_for_end();
}

// What one connection needs, and once what all of them share.
static void prepare(void)
{
	if (!pd) {
		memory = aligned_alloc(4096, MEMORY);
		secret = aligned_alloc(4096, SECRET);
		control = aligned_alloc(4096, 4096);
		need(memory && secret && control, "memory");
		memset(memory, 0, MEMORY);
		fill(memory + READ_AT, (1 << 20) + 1, READ_SEED);
		pd = ibv_alloc_pd(id->verbs);
		need(pd, "ibv_alloc_pd");
		int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
		memory_mr = ibv_reg_mr(pd, memory, MEMORY, all);
		secret_mr = ibv_reg_mr(pd, secret, SECRET, IBV_ACCESS_LOCAL_WRITE);
		control_mr = ibv_reg_mr(pd, control, 4096, IBV_ACCESS_LOCAL_WRITE);
		need(memory_mr && secret_mr && control_mr, "ibv_reg_mr");
	}
	ended = false;
	is_early = false;
	deadline = time(NULL) + PATIENCE_S;
	cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
	need(cq, "ibv_create_cq");
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	need(!rdma_create_qp(id, pd, &attr), "rdma_create_qp");
	post_control_recv();
}

static void release(void)
{
	rdma_destroy_qp(id);
	need(!ibv_destroy_cq(cq), "ibv_destroy_cq");
	rdma_destroy_id(id);
}

static void ask(const struct sockaddr_in *address, const char *scenario)
{
	need(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	deadline = time(NULL) + PATIENCE_S;
	need(!rdma_resolve_addr(id, NULL, (struct sockaddr *)address, 5000), "rdma_resolve_addr");
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	need(!rdma_resolve_route(id, 5000), "rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	prepare();
	struct rdma_conn_param param = {
		.private_data = scenario,
		.private_data_len = (uint8_t)strlen(scenario),
		.responder_resources = 8,
		.initiator_depth = 8,
	};
	need(!rdma_connect(id, &param), "rdma_connect");
	if (is(scenario, "die-asked"))
		die();
	expect(RDMA_CM_EVENT_ESTABLISHED);
	session(scenario, true);
	release();
}

static struct rdma_event_channel *new_channel(void)
{
	struct rdma_event_channel *made = rdma_create_event_channel();
	need(made, "rdma_create_event_channel");
	need(!fcntl(made->fd, F_SETFL, O_NONBLOCK), "fcntl");
	return made;
}

static void answer(uint16_t port)
{
	struct rdma_event_channel *requests = new_channel();
	struct rdma_cm_id *listener;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	need(!rdma_create_id(requests, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	need(!rdma_bind_addr(listener, (struct sockaddr *)&any), "rdma_bind_addr");
	need(!rdma_listen(listener, 8), "rdma_listen");
	puts("listening");
	fflush(stdout);
	for (char scenario[64] = ""; !is(scenario, "enough");) {
		deadline = time(NULL) + 600;
		struct rdma_cm_event *event = next_event(requests, true);
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
			fail("%s", rdma_event_str(event->event));
		id = event->id;
		size_t len = event->param.conn.private_data_len;
		need(len < sizeof scenario, "the scenario's name");
		memcpy(scenario, event->param.conn.private_data, len);
		scenario[len] = 0;
		rdma_ack_cm_event(event);
		if (is(scenario, "die-asked"))
			die();
		need(!rdma_migrate_id(id, channel), "rdma_migrate_id");
		prepare();
		struct rdma_conn_param param = { .responder_resources = 8, .initiator_depth = 8 };
		need(!rdma_accept(id, &param), "rdma_accept");
		session(scenario, false);
		release();
	}
}

int main(int argc, char **argv)
{
	channel = new_channel();
	if (argc == 3 && is(argv[1], "answer")) {
		answer((uint16_t)atoi(argv[2]));
		return 0;
	}
	if (argc < 5 || !is(argv[1], "ask"))
		fail("usage: siw_peer ask ADDRESS PORT SCENARIO [COUNT] | answer PORT");
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)atoi(argv[3])) };
	need(inet_pton(AF_INET, argv[2], &address.sin_addr) == 1, "an IPv4 address");
	for (int count = argc > 5 ? atoi(argv[5]) : 1; count > 0; count--)
		ask(&address, argv[4]);
	return 0;
}
