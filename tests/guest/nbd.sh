# The kernel's NBD client on a volume of the host, which kills its server in the middle and starts another.
#
#   bash /tests/nbd.sh MODE PORT OPERATIONS
. /tests/report.sh
mode=$1 port=$2 operations=$3

modprobe -a nbd ext4
attach() { nbd-client 10.0.2.2 "$1" /dev/nbd0 -N disk -block-size 512; }

exercise() {
  printf '[opsize]\nmax = 16384\n[weights]\nfsync = 0.2\ntruncate = 1\nread = 2\nwrite = 2\nmapread = 1\nmapwrite = 1\n' > /tmp/fsx.toml
  fsx -N "$operations" -S 1 -P /tmp -f /tmp/fsx.toml /mnt/exercised > /tmp/fsx.log 2>&1 || { tail -n 3 /tmp/fsx.log; return 1; }
}

verify() {
  fio --name=verify --filename=/dev/nbd0 --ioengine=psync --direct=1 --rw=randwrite --bsrange=512-32k --blockalign=512 --size=8M \
    --fdatasync=16 --verify=crc32c --minimal
}

check "$mode: attached" attach "$port" || exit 1
check "$mode: the kernel sends flushes" grep -q 'write back' /sys/block/nbd0/queue/write_cache
check "$mode: fio verifies what it wrote" verify
check "$mode: ext4 made" mkfs.ext4 -q -F /dev/nbd0
check "$mode: mounted" mount -o discard /dev/nbd0 /mnt
check "$mode: fsx, $operations operations" exercise
head -c 3000000 /dev/urandom > /mnt/kept
sync
sum=$(sha256sum < /mnt/kept)
echo synced
await served
port=$(cat /job/served)
umount -l /mnt
nbd-client -d /dev/nbd0
patiently attach "$port" || exit 1
check "$mode: mounted from the next server" mount /dev/nbd0 /mnt
same() { [ "$sum" = "$(sha256sum < /mnt/kept)" ]; }
check "$mode: what was synced is there" same
check "$mode: unmounted" umount /mnt
check "$mode: sound" e2fsck -fn /dev/nbd0
check "$mode: detached" nbd-client -d /dev/nbd0
exit 0
