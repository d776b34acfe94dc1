# DRBD beside a replicated volume of ours, and a bare disk: two members of each in this one kernel, over loopback, on disks in memory.
#
#   cargo xtask guest --share DIR --limit 400 -- bash /tests/drbd.sh randwrite 4k 16 [ROUNDS] [tcp|shm]
#
# DIR has drbd.ko, lru_cache.ko and brd.ko of the guest's kernel (target/guest/kernel/lib/modules, unpacked with xz), and in `utils`
# Debian's drbd-utils: apt-get download drbd-utils && dpkg-deb -x drbd-utils_*.deb utils
rw=$1 bs=$2 depth=$3 rounds=${4:-2} way=${5:-tcp}
cd /host || exit 1
insmod lru_cache.ko; insmod libcrc32c.ko 2> /dev/null
insmod brd.ko rd_nr=6 rd_size=65536 || exit 1
insmod drbd.ko || exit 1
modprobe -a nbd ext4
setup=/host/utils/lib/drbd/drbdsetup-84 meta=/host/utils/sbin/drbdmeta
mkdir -p /var/lib/drbd /var/lock /run/lock

# up NAME MINOR DISK: a resource of one volume
up() {
  yes yes | $meta --force "$2" v08 "$3" internal create-md > /tmp/meta 2>&1 || cat /tmp/meta
  $setup new-resource "$1" && $setup new-minor "$1" "$2" 0 && $setup attach "$2" "$3" "$3" internal
}
up one 0 /dev/ram0
up other 1 /dev/ram1
$setup connect one 127.0.0.1:7001 127.0.0.1:7002 --protocol=C
$setup connect other 127.0.0.1:7002 127.0.0.1:7001 --protocol=C
until grep -q cs:Connected /proc/drbd; do usleep 50000; done
$setup new-current-uuid --clear-bitmap 0
$setup primary 0
[ -b /dev/drbd0 ] || mknod /dev/drbd0 b 147 0
grep cs: /proc/drbd

mkfs.ext4 -q -F /dev/ram4
mkdir -p /mnt && mount /dev/ram4 /mnt && mkdir -p /mnt/a /mnt/b && cd /mnt || exit 1
replica="landfast replica"
$replica create db.toml --volume data=64M --log-size 8M --member alpha=127.0.0.1:7445,/mnt/a --member beta=127.0.0.1:7446,/mnt/b
awk '/name = "alpha"/ { disk = "/dev/ram2" } /name = "beta"/ { disk = "/dev/ram3" } { print }
  /^directory/ { print "volumes = [\"" disk "\"]" }' db.toml > with-disks && mv with-disks db.toml
if [ "$way" = shm ]; then
  sed -i 's/^transport = .*/transport = "rdma"/; s/^links_are_private.*/links_are_private = true/; s/^rdma_provider.*/rdma_provider = "shm"/' db.toml
fi
for member in alpha beta; do $replica prepare db.toml $member > /dev/null; done
# Disks of brd are memory, and so is what an ext4 there keeps: our logs are mapped.
$replica serve db.toml alpha --emulate-persistence --unix /run/alpha.sock > /tmp/alpha.log 2>&1 &
$replica serve db.toml beta --emulate-persistence > /tmp/beta.log 2>&1 &
until [ -S /mnt/a/control.sock ] && [ -S /mnt/b/control.sock ]; do usleep 50000; done
$replica promote db.toml --at alpha --force
until $replica status db.toml --at alpha | grep -q 'in sync: .*beta'; do usleep 50000; done
nbd-client -unix /run/alpha.sock /dev/nbd0 -N data > /dev/null 2>&1

# job DISK OPTIONS...: writes a second, KiB a second, microseconds of one at the median
job() {
  fio --name=job --filename="$1" --direct=1 --ioengine=libaio --size=48M --minimal "${@:2}" 2> /dev/null
}
# The log has been written once, and the disks have their memory.
for disk in /dev/ram5 /dev/drbd0 /dev/nbd0; do job $disk --rw=write --bs=256k --iodepth=4 > /dev/null; done
for ((round = 0; round < rounds; round++)); do
  for arm in bare:/dev/ram5 drbd:/dev/drbd0 ours:/dev/nbd0; do
    job "${arm#*:}" --rw="$rw" --bs="$bs" --iodepth="$depth" --runtime=3 --ramp_time=0.5 --time_based |
      awk -F';' -v arm="${arm%%:*}" -v what="$rw $bs QD$depth" '{ print what, arm, $49, "IOPS", $48, "KiB/s mean", $81, "us" }'
  done
done
$replica status db.toml --at alpha | tail -n 2
nbd-client -d /dev/nbd0 > /dev/null
exit 0
