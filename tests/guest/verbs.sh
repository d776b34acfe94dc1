# Provider verbs over a software RDMA device of the kernel: what every provider does, then a server and its clients.
# usage: verbs.sh rxe|siw TEST-PROGRAM...
. /tests/report.sh
device=$1
shift
address=10.0.2.15 smb=4450 rdma=5445 user=user password=secret

case $device in
rxe)
  modprobe -a rdma_rxe rdma_ucm rdma_cm ib_uverbs
  rdma link add rxe0 type rxe netdev eth0
  ;;
siw) . /tests/siw.inc ;;
esac
# What this kernel's device does against the rules; each gap is shown to be there.
declare -A gaps=([siw]=serves-reads-without-right)
export LANDFAST_RDMA_PROVIDER=verbs LANDFAST_RDMA_ADDR=$address LANDFAST_RDMA_GAPS=${gaps[$device]}

is_up() {
  rdma link show | grep "$device.*ACTIVE"
}

# each_test PROGRAM: one check for each test of a Rust test program.
each_test() {
  local line name status
  timeout 200 "$1" --test-threads 1 > /tmp/tests.log 2>&1
  status=$?
  while read -r line; do
    [[ $line =~ ^test\ ([a-z0-9_]+::)*([a-z0-9_]+)\ \.\.\.\ ([a-zA-Z]+) ]] || continue
    name=${BASH_REMATCH[2]}
    case ${BASH_REMATCH[3]} in
    ok) echo "ok $device: $name" ;;
    ignored) echo "gap $device: $name: ignored" ;;
    *) echo "FAIL $device: $name: $(grep -A 4 "::$name' .*panicked" /tmp/tests.log | cut -c 1-300 | tr '\n' ' ')" ;;
    esac
  done < /tmp/tests.log
  [ $status = 0 ] || echo "FAIL $device: $1: status $status, $(tail -n 3 /tmp/tests.log | tr '\n' ' ')"
}

# A whole device of persistent memory.
make_devdax() {
  local n
  for ((n = 0; n < 100; n++)); do [ -e /sys/bus/nd/devices/namespace0.0 ] && break; usleep 50000; done
  ndctl create-namespace -f -e namespace0.0 --mode=devdax --map=mem && export LANDFAST_RDMA_DAX=/dev/dax0.0 && [ -c $LANDFAST_RDMA_DAX ]
}

# serve DIRECTORY OPTION...: a server whose RDMA listener is the device's.
serve() {
  local n directory=$1
  shift
  mkdir -p "$directory"
  landfast serve --share "data=$directory" --user $user:$password --listen 127.0.0.1:$smb --rdma-listen $address:$rdma \
    --rdma-provider verbs --rdma-threads 2 "$@" > /tmp/serve.log 2>&1 &
  for ((n = 0; n < 200; n++)); do grep -q "^listening" /tmp/serve.log && return; usleep 50000; done
  cat /tmp/serve.log
  return 1
}

stop() {
  local n
  kill "$(pidof landfast)" || return 1
  for ((n = 0; n < 200; n++)); do pidof landfast > /dev/null || return 0; usleep 50000; done
  tail -n 3 /tmp/serve.log
  return 1
}

# bench MODE EXPECTED...: measures nothing here; each expected word must be in the report.
bench() {
  local mode=$1 word
  shift
  timeout 90 landfast bench "smb://$user:$password@127.0.0.1:$smb/data" --rdma-provider verbs --mode "$mode" -d 1 -w 50 -t 2 -o 4 \
    --file-size 1M > /tmp/bench.log 2>&1 || { tail -n 3 /tmp/bench.log; return 1; }
  for word in "$@"; do grep -q "$word" /tmp/bench.log || { echo "no $word:"; tail -n 3 /tmp/bench.log; return 1; }; done
  grep -E "^ *(push|smb-direct):|^IOPS" /tmp/bench.log
}

# The bytes of a file that was put, fetched again, with the server's RDMA listener in use.
round_trip() {
  head -c 3000001 /dev/urandom > /tmp/original
  landfast put /tmp/original "smb://$user:$password@127.0.0.1:$smb/data/copy" > /dev/null &&
    landfast get "smb://$user:$password@127.0.0.1:$smb/data/copy" /tmp/fetched > /dev/null && cmp /tmp/original /tmp/fetched
}

# An address of this machine that no RDMA device has.
refuses_other_addresses() {
  ip link add dummy0 type dummy && ip address add 10.98.0.1/24 dev dummy0 && ip link set dummy0 up || return 1
  timeout 10 landfast serve /tmp --user $user:$password --listen 127.0.0.1:0 --rdma-provider verbs --rdma-listen 10.98.0.1:0 \
    > /tmp/refused.log 2>&1 && return 1
  cat /tmp/refused.log
  grep -q "no RDMA device has the address 10.98.0.1" /tmp/refused.log
}

# A client that dies in the middle: what it held is given back, and others are served.
outlives_a_client() {
  timeout -s KILL 2 landfast bench "smb://$user:$password@127.0.0.1:$smb/data" --rdma-provider verbs --mode push -d 60 -w 50 -t 2 -o 4 \
    --file-size 1M > /tmp/killed.log 2>&1
  pidof landfast > /dev/null && bench push "push by provider verbs"
}

echo "kernel $(uname -r), $(rdma link show | grep "$device" | head -n 1), libibverbs $(basename "$(readlink -f /usr/lib/x86_64-linux-gnu/libibverbs.so.1)")"
check "$device: the device is up" is_up
modprobe -a nfit nd_pmem device_dax dax_pmem 2> /dev/null
check "$device: devdax" make_devdax
ping -c 1 -W 10 "$HOST" > /dev/null
for tests in "$@"; do each_test "/host/$tests"; done
check "$device: an address without a device is refused" refuses_other_addresses
check "$device: the server starts" serve /tmp/share --emulate-persistence
check "$device: push over verbs" bench push "push by provider verbs, class volatile, commit by message" "provider verbs"
tail -n 1 /tmp/bench.log
check "$device: SMB Direct over verbs" bench smb-direct "over SMB Direct"
check "$device: a client is killed" outlives_a_client
check "$device: put and get" round_trip
check "$device: the server stops" stop
dmesg | grep -E 'BUG|WARNING|Oops' | tail -n 5
exit 0
