#!/usr/bin/python3
"""SQLite with the extension of Landfast, by several processes at once, with kills, and a check of what they saw.

    sqlite_check.py SO storm  --place local|share|share-wal [--seconds 20] [--server LANDFAST] [--kill-server]
    sqlite_check.py SO kills  [--rounds 20]      one writer is killed; the file below its log is lost every second time
    sqlite_check.py SO readers [--transactions 2000]   what another process reads of a log that it does not own
    sqlite_check.py SO faults [--calls 400]      the n-th call of a file fails, for n from 1 on
    sqlite_check.py SO client URI LEDGER NAME    one client of a storm

Each transaction of a storm reads some rows, and gives some of those a value that nobody else writes. So the order of the values
of each row is known, and with it which transaction has to come before which: the history is serialisable if that has no cycle, and
strictly so if no transaction misses what was acknowledged before it began. A commit whose outcome its client does not know counts
if anybody saw its values.
"""
import argparse, json, os, random, shutil, signal, sqlite3, subprocess, sys, tempfile, time

ROWS = 12


def load(so):
    boot = sqlite3.connect(":memory:")
    boot.enable_load_extension(True)
    boot.load_extension(so)
    return boot


def connect(uri, exclusive=False):
    link = sqlite3.connect("file:" + uri, uri=True, isolation_level=None, timeout=10.0)
    try:
        if exclusive:
            link.execute("pragma locking_mode=exclusive")
        link.execute("pragma synchronous=full")
    except sqlite3.Error:
        # Python would keep it open until it next looks for cycles.
        link.close()
        raise
    return link


def prepare(uri, mode, exclusive=False):
    link = connect(uri, exclusive)
    found = link.execute(f"pragma journal_mode={mode}").fetchone()[0]
    assert found == mode, found
    said = link.execute("pragma landfast").fetchone()[0]
    assert ("NORMAL (shared" in said) == (not uri.startswith("smb:")), said
    link.execute("create table kv(k integer primary key, v text not null)")
    link.executemany("insert into kv values(?,?)", [(k, "start") for k in range(ROWS)])
    link.close()


# --- one client -----------------------------------------------------------------------------------------------------

def client(so, uri, ledger, name, exclusive):
    load(so)
    out = open(ledger, "a", buffering=1)
    say = lambda **what: out.write(json.dumps(what) + "\n")
    draw = random.Random(f"{name}{os.getpid()}{time.time()}")
    number, link = 0, None
    while True:
        if link is None:
            try:
                link = connect(uri, exclusive)
            except sqlite3.Error as error:
                say(trouble=str(error))
                time.sleep(0.05)
                continue
        number += 1
        ident = f"{name}.{os.getpid()}.{number}"
        reads, writes = {}, {}
        try:
            begun = time.monotonic()
            link.execute(draw.choice(["begin", "begin immediate"]))
            keys = draw.sample(range(ROWS), draw.randint(2, 4))
            for key in keys:
                reads[key] = link.execute("select v from kv where k=?", (key,)).fetchone()[0]
            if draw.random() < 0.7:
                for key in keys[: draw.randint(1, 2)]:
                    writes[key] = ident
                    link.execute("update kv set v=? where k=?", (ident, key))
        except sqlite3.Error as error:
            say(trouble=str(error))
            link = drop(link, error)
            continue
        say(id=ident, begun=begun, reads=reads, writes=writes)
        try:
            link.execute("commit")
            say(ack=ident, at=time.monotonic())
        except sqlite3.OperationalError as error:
            say(trouble=str(error))
            if "locked" in str(error) or "busy" in str(error):
                try:
                    link.execute("rollback")
                    say(abort=ident)
                except sqlite3.Error:
                    link = drop(link, error)
            else:
                link = drop(link, error)
        if exclusive and number % 20 == 0 and link:
            # Others get their turn.
            link.close()
            link = None


def drop(link, error):
    try:
        link.rollback()
    except sqlite3.Error:
        pass
    if "locked" in str(error) or "busy" in str(error):
        return link
    try:
        link.close()
    except sqlite3.Error:
        pass
    return None


# --- the check ------------------------------------------------------------------------------------------------------

def check_history(ledgers, final):
    started, acked, aborted, troubles = {}, {}, set(), {}
    for path in ledgers:
        for line in open(path):
            try:
                what = json.loads(line)
            except ValueError:
                continue  # the writer was killed within the line
            if "id" in what:
                what["reads"] = {int(k): v for k, v in what["reads"].items()}
                what["writes"] = {int(k): v for k, v in what["writes"].items()}
                started[what["id"]] = what
            elif "ack" in what:
                acked[what["ack"]] = what["at"]
            elif "abort" in what:
                aborted.add(what["abort"])
            else:
                troubles[what["trouble"]] = troubles.get(what["trouble"], 0) + 1
    chains = {}
    for key in range(ROWS):
        chain, value = [], final[key]
        while value != "start":
            assert value in started, f"row {key} has the value {value} that nobody wrote"
            assert value not in aborted, f"row {key} has the value of {value}, which was rolled back"
            assert key in started[value]["writes"], f"{value} did not write row {key}"
            chain.append(value)
            value = started[value]["reads"][key]
            assert len(chain) <= len(started), f"the values of row {key} go in circles"
        chains[key] = ["start"] + chain[::-1]
    places = {key: {value: at for at, value in enumerate(chain)} for key, chain in chains.items()}
    counted = {value for chain in chains.values() for value in chain if value != "start"}
    for ident in acked:
        for key in started[ident]["writes"]:
            assert ident in places[key], f"the acknowledged transaction {ident} is not in row {key}"
    for ident in counted:
        for key in started[ident]["writes"]:
            assert ident in places[key], f"{ident} is in some of its rows only"
    # Readers that were acknowledged count as well.
    nodes = counted | set(acked)
    after = {ident: set() for ident in nodes}
    for ident in nodes:
        for key, value in started[ident]["reads"].items():
            assert value in places[key], f"{ident} read {value} in row {key}, which never was there"
            at = places[key][value]
            if value != "start":
                after[value].add(ident)
            if at + 1 < len(chains[key]):
                follower = chains[key][at + 1]
                if follower != ident:
                    after[ident].add(follower)
    check_no_cycle(after)
    # Nobody misses what was acknowledged before it began.
    for key in range(ROWS):
        writes = sorted((acked[i], places[key][i]) for i in acked if key in started[i]["writes"])
        reads = sorted((started[i]["begun"], places[key][started[i]["reads"][key]], i) for i in acked if key in started[i]["reads"])
        best, index = 0, 0
        for begun, at, ident in reads:
            while index < len(writes) and writes[index][0] < begun:
                best = max(best, writes[index][1])
                index += 1
            assert at >= best, f"{ident} read an older value of row {key} than was acknowledged before it began"
    return len(acked), len(counted - set(acked)), troubles


def check_no_cycle(after):
    incoming = {ident: 0 for ident in after}
    for followers in after.values():
        for ident in followers:
            incoming[ident] += 1
    ready = [ident for ident, count in incoming.items() if count == 0]
    done = 0
    while ready:
        done += 1
        for ident in after[ready.pop()]:
            incoming[ident] -= 1
            if incoming[ident] == 0:
                ready.append(ident)
    assert done == len(after), f"{len(after) - done} transactions have no serial order"


def selftest():
    """The check finds what it is for."""
    def history(lines):
        with tempfile.NamedTemporaryFile("w", suffix=".ledger", delete=False) as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
        return [out.name]
    def final(**rows):
        return {key: rows.get(f"r{key}", "start") for key in range(ROWS)}
    def refused(lines, rows):
        try:
            check_history(history(lines), rows)
        except AssertionError:
            return True
        return False
    a = dict(id="a", begun=1, reads={0: "start", 1: "start"}, writes={0: "a"})
    b = dict(id="b", begun=1, reads={0: "start", 1: "start"}, writes={1: "b"})
    acks = [dict(ack="a", at=2), dict(ack="b", at=2)]
    assert refused([a, b] + acks, final(r0="a", r1="b")), "write skew"
    assert refused([a] + acks[:1], final()), "lost commit"
    late = dict(id="b", begun=3, reads={0: "start"}, writes={})
    assert refused([a, late] + acks, final(r0="a")), "stale read"
    good = dict(id="b", begun=3, reads={0: "a", 1: "start"}, writes={1: "b"})
    assert not refused([a, good, acks[0], dict(ack="b", at=4)], final(r0="a", r1="b")), "a sound history"


# --- storms ---------------------------------------------------------------------------------------------------------

class Server:
    def __init__(self, binary, share):
        self.binary, self.share, self.port, self.rdma, self.child = binary, share, 0, 0, None
        self.start()

    def start(self):
        self.child = subprocess.Popen(
            [self.binary, "serve", "--share", f"s={self.share}", "--user", "u:p", "--listen", f"127.0.0.1:{self.port}",
             "--rdma-listen", f"127.0.0.1:{self.rdma}", "--control", "off", "--emulate-persistence"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.child.stdout.readline()
        fields = dict(field.split("=") for field in line.split()[1:] if "=" in field)
        self.port, self.rdma = int(fields["smb"].rsplit(":", 1)[1]), int(fields["rdma"].rsplit(":", 1)[1])

    def kill(self):
        self.child.kill()
        self.child.wait()

    def url(self, name):
        return f"smb://u:p@127.0.0.1:{self.port}/s/{name}"


def storm(args):
    selftest()
    load(args.so)
    shm = tempfile.mkdtemp(prefix="landfast-db-", dir="/dev/shm")
    disk = tempfile.mkdtemp(prefix="landfast-db-", dir=args.directory)
    server, clients = None, {}
    try:
        exclusive = args.place == "share-wal"
        if args.place == "local":
            uri, mode = f"{disk}/app.db?vfs=landfast&log={shm}/app.log&emulate=1&log_size=4M", "wal"
        else:
            server = Server(args.server, shm)
            uri, mode = server.url("app.db") + "?vfs=landfast", "delete"
            if exclusive:
                uri, mode = uri + f"&log={server.url('app.log')}&emulate=1&log_size=4M", "wal"
        prepare(uri, mode, exclusive)
        ledgers = [f"{disk}/client{number}.ledger" for number in range(args.clients)]
        begin = lambda number: subprocess.Popen(
            [sys.executable, __file__, args.so, "client", uri, ledgers[number], f"c{number}"] + (["--exclusive"] if exclusive else []))
        clients = {number: begin(number) for number in range(args.clients)}
        end, kills, server_kills = time.time() + args.seconds, 0, 0
        while time.time() < end:
            time.sleep(random.uniform(0.3, 1.5))
            if args.kill_server and server and random.random() < 0.15:
                server.kill()
                server.start()
                server_kills += 1
                continue
            victim = random.choice(list(clients))
            assert clients[victim].poll() is None, f"client {victim} ended by itself"
            clients[victim].kill()
            clients[victim].wait()
            clients[victim] = begin(victim)
            kills += 1
        for child in clients.values():
            child.kill()
            child.wait()
        link = connect(uri, exclusive)
        sound = link.execute("pragma integrity_check").fetchone()[0]
        assert sound == "ok", sound
        final = dict(link.execute("select k, v from kv"))
        link.close()
        acked, unknown, troubles = check_history(ledgers, final)
        assert acked > 20, f"only {acked} transactions; {troubles}"
        print(f"{args.place}: {acked} transactions acknowledged, all there, {unknown} more of unknown outcome; serialisable; "
              f"{kills} clients and {server_kills} servers killed; integrity_check ok; {troubles}")
    finally:
        for child in clients.values():
            child.kill()
            child.wait()
        if server:
            server.kill()
        shutil.rmtree(shm)
        shutil.rmtree(disk)


# --- one writer, killed ---------------------------------------------------------------------------------------------

WRITER = """
import sys, sqlite3
sys.path.insert(0, {here!r})
import sqlite_check as check
check.load({so!r})
link = check.connect({uri!r})
number = link.execute("select coalesce(max(n), 0) from t").fetchone()[0]
while True:
    number += 1
    link.execute("begin")
    link.execute("insert into t values(?, ?)", (number, b"x" * (number * 37 % 9000)))
    link.execute("update total set n = n + 1")
    link.execute("commit")
    print(number, flush=True)
"""


def kills(args):
    load(args.so)
    shm = tempfile.mkdtemp(prefix="landfast-db-", dir="/dev/shm")
    disk = tempfile.mkdtemp(prefix="landfast-db-", dir=args.directory)
    try:
        uri = f"{disk}/app.db?vfs=landfast&log={shm}/a.log&log2={shm}/b.log&emulate=1&log_size=20M"
        link = connect(uri)
        link.execute("pragma journal_mode=wal")
        link.execute("create table t(n integer primary key, v blob)")
        link.execute("create table total(n integer)")
        link.execute("insert into total values(0)")
        link.close()
        program = WRITER.format(here=os.path.dirname(os.path.abspath(__file__)), so=args.so, uri=uri)
        acknowledged = 0
        for number in range(args.rounds):
            child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
            killer = subprocess.Popen(["sh", "-c", f"sleep {random.uniform(0.2, 0.8)}; kill -9 {child.pid}"])
            for line in child.stdout:
                if line.endswith("\n"):
                    acknowledged = int(line)
            child.wait()
            killer.wait()
            assert child.returncode == -signal.SIGKILL, "the writer ended by itself"
            if number % 2:
                # What a power failure may leave: with this size of the log, nothing of the file below it was ever flushed.
                for end in ["-wal", "-shm"]:
                    if os.path.exists(f"{disk}/app.db{end}"):
                        os.unlink(f"{disk}/app.db{end}")
            link = connect(uri)
            assert link.execute("pragma integrity_check").fetchone()[0] == "ok"
            # The first writer may be killed before its first transaction.
            count, last = link.execute("select count(*), coalesce(max(n), 0) from t").fetchone()
            assert last >= acknowledged, f"{acknowledged} was acknowledged, {last} is the last that is there"
            assert count == last == link.execute("select n from total").fetchone()[0]
            link.close()
            acknowledged = last
        print(f"{args.rounds} kills, {acknowledged} transactions, none lost")
    finally:
        shutil.rmtree(shm)
        shutil.rmtree(disk)


# --- readers of a log that another process owns ----------------------------------------------------------------------

ALL_ROWS = """
import sys, os
sys.path.insert(0, {here!r})
import sqlite_check as check
check.load({so!r})
link = check.connect({uri!r})
link.execute("pragma synchronous=normal")
for number in range(1, {transactions} + 1):
    link.execute("begin immediate")
    link.execute("update t set n = ?, v = ?", (number, os.urandom(3000)))
    link.execute("commit")
"""


def readers(args):
    load(args.so)
    shm = tempfile.mkdtemp(prefix="landfast-db-", dir="/dev/shm")
    writer = None
    try:
        uri = f"{shm}/app.db?vfs=landfast&log={shm}/a.log&emulate=1&log_size=20M"
        link = connect(uri)
        link.execute("pragma journal_mode=wal")
        link.execute("create table t(k integer primary key, n integer, v blob)")
        link.executemany("insert into t values(?, 0, ?)", [(k, os.urandom(3000)) for k in range(ROWS)])
        link.execute("pragma cache_size=5")
        program = ALL_ROWS.format(
            here=os.path.dirname(os.path.abspath(__file__)), so=args.so, uri=uri, transactions=args.transactions)
        writer = subprocess.Popen([sys.executable, "-c", program])
        reads, last = 0, 0
        while writer.poll() is None:
            found = [n for (n,) in link.execute("select n from t")]
            assert len(found) == ROWS and len(set(found)) == 1, f"part of a transaction: {sorted(set(found))}"
            assert found[0] >= last, f"{found[0]} after {last}"
            last = found[0]
            reads += 1
            if reads % 3 == 0:
                link.execute("pragma wal_checkpoint(passive)").fetchall()
        assert writer.returncode == 0, "the writer failed"
        assert link.execute("select min(n) from t").fetchone()[0] == args.transactions
        assert link.execute("pragma integrity_check").fetchone()[0] == "ok"
        link.close()
        print(f"{reads} reads beside {args.transactions} transactions, each of a whole state")
    finally:
        if writer:
            writer.kill()
            writer.wait()
        shutil.rmtree(shm)


# --- faults ---------------------------------------------------------------------------------------------------------

def faults(args):
    load(args.so)
    failed = 0
    for stays in ["", "&fault_stays=1"]:
        for call in range(1, args.calls + 1):
            shm = tempfile.mkdtemp(prefix="landfast-db-", dir="/dev/shm")
            plain = f"{shm}/app.db?vfs=landfast&log={shm}/app.log&emulate=1&log_size=256K"
            try:
                link = connect(plain)
                link.execute("pragma journal_mode=wal")
                link.execute("pragma wal_autocheckpoint=10")
                link.execute("create table t(n integer primary key, v blob)")
                link.close()
                acknowledged, attempted = 0, 0
                try:
                    link = connect(plain + f"&fault={call}{stays}")
                    link.execute("pragma wal_autocheckpoint=10")
                    for number in range(1, 41):
                        attempted = number
                        link.execute("insert into t values(?, ?)", (number, b"x" * (number * 911 % 9000)))
                        acknowledged = number
                except sqlite3.Error:
                    failed += 1
                try:
                    link.close()
                except sqlite3.Error:
                    pass
                link = connect(plain)
                assert link.execute("pragma integrity_check").fetchone()[0] == "ok"
                rows = [row[0] for row in link.execute("select n from t order by n")]
                assert rows in (list(range(1, acknowledged + 1)), list(range(1, attempted + 1))), f"call {call}: {rows}, {acknowledged} acknowledged"
                link.close()
            finally:
                shutil.rmtree(shm)
    assert failed > 20, f"only {failed} faults reached SQLite"
    print(f"{2 * args.calls} places of a fault, {failed} seen by SQLite: sound, nothing lost")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("so")
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("storm")
    one.add_argument("--place", choices=["local", "share", "share-wal"], required=True)
    one.add_argument("--seconds", type=float, default=20)
    one.add_argument("--clients", type=int, default=2)
    one.add_argument("--server", help="the binary landfast, for shares")
    one.add_argument("--kill-server", action="store_true")
    two = kinds.add_parser("kills")
    two.add_argument("--rounds", type=int, default=20)
    three = kinds.add_parser("faults")
    three.add_argument("--calls", type=int, default=400)
    five = kinds.add_parser("readers")
    five.add_argument("--transactions", type=int, default=2000)
    four = kinds.add_parser("client")
    for name in ["uri", "ledger", "name"]:
        four.add_argument(name)
    four.add_argument("--exclusive", action="store_true")
    for kind in [one, two]:
        kind.add_argument("--directory", default=tempfile.gettempdir(), help="where the database lies")
    args = parser.parse_args()
    if args.kind == "client":
        client(args.so, args.uri, args.ledger, args.name, args.exclusive)
    else:
        {"storm": storm, "kills": kills, "readers": readers, "faults": faults}[args.kind](args)


if __name__ == "__main__":
    main()
