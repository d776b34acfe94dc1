#!/usr/bin/python3
"""PostgreSQL, unmodified, with pg_wal in a directory of ours: pgbench with it and without, in turns, and crashes.

    postgres_check.py MOUNT --directory DISK [--rounds 3] [--seconds 5] [--kills 5]

MOUNT is a directory on a file system that lies on a volume of Landfast (as /dev/loopN by `landfast volume serve --fuse DIR --loop`).
The clusters, data and all but pg_wal of ours, lie in DISK. Every server that is started here is ended here.
"""
import argparse, glob, os, random, shutil, signal, statistics, subprocess, sys, tempfile, threading, time

BIN = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]


def as_postgres(*command, **options):
    words = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command] if os.geteuid() == 0 else list(command)
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd="/", **options)


class Cluster:
    def __init__(self, data, wal, port):
        self.data, self.port = data, port
        extra = ["--waldir", wal] if wal else []
        as_postgres(f"{BIN}/initdb", "-D", data, "-A", "trust", "-N", *extra)
        with open(f"{data}/postgresql.conf", "a") as out:
            out.write(f"port={port}\nlisten_addresses=''\nunix_socket_directories='{data}'\nsynchronous_commit=on\nfsync=on\nmax_wal_size=256MB\nmin_wal_size=80MB\n")
        self.start()
        self.sql("postgres", "create table acks(n int primary key)")
        as_postgres(f"{BIN}/pgbench", "-h", data, "-p", str(port), "-i", "-s", "1", "postgres")

    def start(self):
        as_postgres(f"{BIN}/pg_ctl", "-D", self.data, "-w", "-t", "60", "-l", f"{self.data}/log", "start")

    def pid(self):
        return int(open(f"{self.data}/postmaster.pid").readline())

    def stop(self):
        if os.path.exists(f"{self.data}/postmaster.pid"):
            as_postgres(f"{BIN}/pg_ctl", "-D", self.data, "-m", "immediate", "stop")

    def sql(self, database, text):
        return as_postgres(f"{BIN}/psql", "-h", self.data, "-p", str(self.port), "-XAtqc", text, database).stdout.strip()

    def bench(self, seconds):
        said = as_postgres(f"{BIN}/pgbench", "-h", self.data, "-p", str(self.port), "-c", "4", "-T", str(seconds), "-N", "postgres").stdout
        return float(next(line for line in said.splitlines() if line.startswith("tps")).split()[2])

    def crash(self, number):
        """Inserts until the server is killed; every row that was acknowledged has to be there."""
        acked = []
        def insert():
            at = number * 1_000_000
            while True:
                at += 1
                try:
                    self.sql("postgres", f"insert into acks values({at})")
                except subprocess.CalledProcessError:
                    return
                acked.append(at)
        worker = threading.Thread(target=insert)
        worker.start()
        time.sleep(random.uniform(0.5, 1.5))
        pid = self.pid()
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
        for process in [pid, *map(int, children)]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended with its parent
        worker.join()
        time.sleep(0.5)
        os.unlink(f"{self.data}/postmaster.pid")
        for attempt in range(20):
            try:
                self.start()
                break
            except subprocess.CalledProcessError:
                # The last of the killed processes holds the shared memory.
                assert attempt < 19, open(f"{self.data}/log").read()[-2000:]
                time.sleep(0.5)
        there = {int(line) for line in self.sql("postgres", "select n from acks").split()}
        lost = [n for n in acked if n not in there]
        assert not lost, f"{len(lost)} of {len(acked)} acknowledged rows are lost"
        return len(acked)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mount")
    parser.add_argument("--directory", default="/var/tmp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=5)
    args = parser.parse_args()
    disk = tempfile.mkdtemp(prefix="landfast-pg-", dir=args.directory)
    wal = tempfile.mkdtemp(prefix="pg-", dir=args.mount)
    clusters = []
    try:
        for path in [disk, wal]:
            if os.geteuid() == 0:
                shutil.chown(path, "postgres", "postgres")
        own = Cluster(f"{disk}/own", None, 54321)
        clusters.append(own)
        ours = Cluster(f"{disk}/ours", f"{wal}/pg_wal", 54322)
        clusters.append(ours)
        rates = []
        for _ in range(args.rounds):
            rates.append((own.bench(args.seconds), ours.bench(args.seconds)))
        ratio = statistics.median(b / a for a, b in rates)
        print(f"pgbench -N, 4 clients: {statistics.median(a for a, _ in rates):.0f} tps with pg_wal on the disk, "
              f"{statistics.median(b for _, b in rates):.0f} with pg_wal here: {ratio:.2f} times")
        rows = sum(ours.crash(number) for number in range(1, args.kills + 1))
        print(f"{args.kills} crashes: {rows} acknowledged rows, none lost")
    finally:
        for cluster in clusters:
            cluster.stop()
        shutil.rmtree(disk, ignore_errors=True)
        shutil.rmtree(wal, ignore_errors=True)


if __name__ == "__main__":
    main()
