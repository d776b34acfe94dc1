#!/usr/bin/python3
"""Updates a second of SQLite and redb, row of 32 bytes, each a transaction: with the ordinary log and with the tail of a log,
on the same disk, in turns.  Writes the table (Markdown) and the plot (SVG) of docs/databases.md.

    updates.py --so SO --server LANDFAST --redb EXAMPLE --directory DISK [--rounds 5] [--seconds 2] [--out DOCS]
"""
import argparse, os, shutil, sqlite3, statistics, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sqlite_check as check

GOALS = {"tail, local memory": 5.0, "tail, remote": 3.0, "tail, mirror of two remote": 2.5}
ARMS = ["own", "tail, local memory", "tail, remote", "tail, mirror of two remote", "tail, on the same disk"]


def updates(link, seconds):
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        link.execute("update t set v=? where id=?", (b"%032d" % count, count % 1000))
        count += 1
    return count / (time.monotonic() - begin)


def sqlite_arms(args, disk, shm, servers):
    check.load(args.so)
    logs = {
        "own": "",
        "tail, local memory": f"?vfs=landfast&emulate=1&log={shm[0]}/a.log",
        "tail, remote": f"?vfs=landfast&emulate=1&log={servers[0].url('q.log')}",
        "tail, mirror of two remote": f"?vfs=landfast&emulate=1&log={servers[0].url('m.log')}&log2={servers[1].url('m.log')}",
        "tail, on the same disk": f"?vfs=landfast&log={disk}/disk.log",
    }
    links = {}
    for number, arm in enumerate(ARMS):
        link = check.connect(f"{disk}/{number}.db{logs[arm]}")
        assert link.execute("pragma journal_mode=wal").fetchone()[0] == "wal"
        link.execute("create table t(id integer primary key, v blob)")
        link.execute("begin")
        link.executemany("insert into t values(?,?)", [(k, b"x" * 32) for k in range(1000)])
        link.execute("commit")
        links[arm] = link
    found = {arm: [] for arm in ARMS}
    for _ in range(args.rounds):
        for arm in ARMS:
            found[arm].append(updates(links[arm], args.seconds))
    for link in links.values():
        assert link.execute("pragma integrity_check").fetchone()[0] == "ok"
        link.close()
    return found


def redb_arms(args):
    said = subprocess.run([args.redb, args.directory, str(args.rounds), str(args.seconds)], check=True, capture_output=True, text=True)
    found = {arm: [] for arm in ARMS}
    for line in said.stdout.splitlines():
        arm, rate = line.split("\t")
        found[arm].append(float(rate))
    return found


def table(results):
    lines = ["| database | log | updates a second | of its own log, middle (least to most) | goal |", "|---|---|---|---|---|"]
    met = True
    for database, found in results.items():
        for arm in ARMS:
            ratios = [ours / own for ours, own in zip(found[arm], found["own"])]
            middle = statistics.median(ratios)
            goal = GOALS.get(arm)
            met = met and (goal is None or middle >= goal)
            lines.append(f"| {database} | {arm} | {statistics.median(found[arm]):,.0f} | {middle:.1f} ({min(ratios):.1f} to {max(ratios):.1f}) | {goal or ''} |")
    return "\n".join(lines) + "\n", met


def plot(results):
    import math
    bars, y, left, width = [], 40, 250, 420
    top = max(statistics.median(rates) for found in results.values() for rates in found.values())
    scale = lambda rate: max(1.0, width * math.log10(max(rate, 10) / 10) / math.log10(top / 10))
    for database, found in results.items():
        bars.append(f'<text x="10" y="{y + 12}" font-weight="bold">{database}</text>')
        y += 22
        for arm in ARMS:
            rate = statistics.median(found[arm])
            colour = "#888888" if arm == "own" else "#3366aa"
            bars.append(f'<text x="20" y="{y + 13}">{arm}</text><rect x="{left}" y="{y}" width="{scale(rate):.0f}" height="16" fill="{colour}"/>'
                        f'<text x="{left + scale(rate) + 6:.0f}" y="{y + 13}">{rate:,.0f}</text>')
            y += 22
        y += 10
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{y + 10}" font-family="sans-serif" font-size="13">\n'
            f'<rect width="760" height="{y + 10}" fill="white"/>\n<text x="10" y="20">Updates a second, one row of 32 bytes each (logarithmic)</text>\n'
            + "\n".join(bars) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["so", "server", "redb", "directory"]:
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--out", help="directory for databases-table.md and databases.svg")
    parser.add_argument("--judge", action="store_true", help="fail where a goal is not met")
    args = parser.parse_args()
    disk = tempfile.mkdtemp(prefix="landfast-db-", dir=args.directory)
    shm = [tempfile.mkdtemp(prefix="landfast-db-", dir="/dev/shm") for _ in range(2)]
    servers = []
    try:
        servers = [check.Server(args.server, directory) for directory in shm]
        results = {"SQLite": sqlite_arms(args, disk, shm, servers)}
        for server in servers:
            server.kill()
        results["redb"] = redb_arms(args)
    finally:
        for server in servers:
            server.kill()
        for directory in [disk, *shm]:
            shutil.rmtree(directory)
    text, met = table(results)
    print(text)
    if args.out:
        with open(os.path.join(args.out, "databases.svg"), "w") as out:
            out.write(plot(results))
    return 0 if met or not args.judge else 1


if __name__ == "__main__":
    sys.exit(main())
