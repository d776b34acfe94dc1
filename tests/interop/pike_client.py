"""pike-smb2: its own tests of an SMB server, each in a process of its own and with a time limit.

A test named in pike-gaps.txt counts as a known gap, and only when it really fails. One that pike
skips, because the server does not offer what it is about, is shown and not counted.
"""

import importlib
import multiprocessing
import os
import pkgutil
import sys
import unittest

from report import Gap, Report, arguments

# Seconds a test may take.
LIMIT = 10
# Tests that wait for a minute and more, or send 64 Ki requests one by one.
ENDLESS = {
    "credit.EdgeCreditTest.test_sequence_number_wrap",
    "durable.DurableHandleTest.test_durable_v2_timer",
}


def gaps():
    """What is known to fail, and why."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pike-gaps.txt")
    with open(path, encoding="utf-8") as lines:
        told = (line.strip() for line in lines)
        pairs = (line.split(": ", 1) for line in told if line and not line.startswith("#"))
        return dict(pairs)


def tests():
    """All tests of pike by name."""
    package = importlib.import_module("pike.test")
    loader = unittest.TestLoader()
    for module in pkgutil.iter_modules(package.__path__):
        suite = loader.loadTestsFromName(f"pike.test.{module.name}")
        pending = [suite]
        while pending:
            for item in pending.pop(0):
                if isinstance(item, unittest.TestSuite):
                    pending.append(item)
                else:
                    yield item.id().removeprefix("pike.test."), item


def carry_out(test, answer):
    """Runs one test in this process and says what came of it."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stderr = sys.stdout = nowhere
        result = unittest.TestResult()
        test.run(result)
    faults = [text for _, text in result.failures + result.errors]
    if faults:
        answer.send(("fail", faults[0].strip().splitlines()[-1]))
    elif result.skipped:
        answer.send(("skip", result.skipped[0][1]))
    else:
        answer.send(("pass", ""))
    answer.close()


def outcome(test):
    """What came of a test, in a process that is ended when its time is over."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=carry_out, args=(test, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(LIMIT) else ("fail", f"not over after {LIMIT} s")
    except EOFError:
        return ("fail", "the test ended by itself")
    finally:
        process.kill()
        process.join()
        ours.close()


def dial(port):
    """Some tests name no port, whatever PIKE_PORT says; then this one."""
    model = importlib.import_module("pike.model")
    model.Client.connect.__defaults__ = (port,)


def main():
    options = arguments(__doc__)
    dial(options.port)
    os.environ["PIKE_SERVER"] = options.host
    os.environ["PIKE_PORT"] = str(options.port)
    os.environ["PIKE_SHARE"] = options.share
    os.environ["PIKE_CREDS"] = f"WORKGROUP\\{options.user}%{options.password}"
    report, known = Report(), gaps()
    chosen = tuple(os.environ.get("LANDFAST_PIKE", "").split(","))
    for name, test in tests():
        if not name.startswith(chosen) or name in ENDLESS:
            continue
        verdict, why = outcome(test)
        if verdict == "skip":
            print(f"  {name}: left out by pike: {why}", flush=True)
            continue
        with report.check(name):
            if verdict == "fail" and name in known:
                raise Gap(f"{known[name]} ({why})")
            if verdict == "fail":
                raise AssertionError(why)
    report.conclude()


if __name__ == "__main__":
    main()
