# Provider verbs over a software RDMA device of the kernel: what every provider does, then a server and its clients.
# usage: verbs.sh rxe|siw PROVIDER-TESTS
. /tests/report.sh
device=$1 tests=$2
address=10.0.2.15

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
    [[ $line =~ ^test\ (tests::)?([a-z0-9_]+)\ \.\.\.\ ([a-zA-Z]+) ]] || continue
    name=${BASH_REMATCH[2]}
    case ${BASH_REMATCH[3]} in
    ok) echo "ok $device: $name" ;;
    ignored) echo "gap $device: $name: ignored" ;;
    *) echo "FAIL $device: $name: $(grep -A 4 "::$name' .*panicked" /tmp/tests.log | cut -c 1-300 | tr '\n' ' ')" ;;
    esac
  done < /tmp/tests.log
  [ $status = 0 ] || echo "FAIL $device: $1: status $status, $(tail -n 3 /tmp/tests.log | tr '\n' ' ')"
}

echo "kernel $(uname -r), $(rdma link show | grep "$device" | head -n 1), libibverbs $(basename "$(readlink -f /usr/lib/x86_64-linux-gnu/libibverbs.so.1)")"
check "$device: the device is up" is_up
ping -c 1 -W 10 "$HOST" > /dev/null
each_test "/host/$tests"
dmesg | grep -E 'BUG|WARNING|Oops' | tail -n 5
exit 0
