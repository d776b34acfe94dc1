# How a script of the guest says what it found: one line a check, as tests/interop/report.py has it.
#
#     ok NAME
#     FAIL NAME: evidence
#     gap NAME: why it cannot be so

# check NAME COMMAND...: one check; what the command printed last is the evidence when it fails.
check() {
  local name=$1 said status
  shift
  said=$("$@" 2>&1)
  status=$?
  if [ $status = 0 ]; then
    echo "ok $name"
  else
    echo "FAIL $name: status $status, $(tail -n 3 <<< "$said" | tr '\n' ' ')$(dmesg | tail -n 2 | tr '\n' ' ')"
  fi
  return $status
}

# await FILE: until the host says so.
await() {
  until [ -e "/job/$1" ]; do usleep 50000; done
}

# patiently COMMAND...: again and again until it succeeds, for a minute at least: an emulated processor has a slow day.
patiently() {
  local attempt
  for ((attempt = 0; attempt < 1200; attempt++)); do
    "$@" && return 0
    usleep 50000
  done
  return 1
}
