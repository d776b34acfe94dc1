# A volume as the kernel's disk by ublk, in the guest; its server is killed while the disk is in use.
#
#   bash /tests/ublk.sh MODE OPERATIONS KILLS
. /tests/report.sh
mode=$1 operations=$2 kills=$3

modprobe -a ublk_drv ext4
case $mode in
  block) volume=/dev/shm/volume ;;
  file) volume=/tmp/volume ;;
esac
disk=/dev/ublkb0

# Checks run in shells of their own: a server is known by its number alone.
serve() {
  rm -f /tmp/serve.log
  landfast volume serve $volume --ublk 0 --emulate-persistence > /tmp/serve.log 2>&1 &
  echo $! > /tmp/server
  patiently grep -q 'serving' /tmp/serve.log || { cat /tmp/serve.log; return 1; }
}
is_over() { ! kill -0 "$(cat /tmp/server)" 2> /dev/null; }
end() {
  kill -TERM "$(cat /tmp/server)"
  patiently is_over
}
killed() {
  kill -KILL "$(cat /tmp/server)"
  patiently is_over
}
verify() {
  fio --name=verify --filename=$disk --ioengine=psync --direct=1 --rw=randwrite --bsrange=4k-64k --blockalign=4k --size=8M \
    --fdatasync=16 --verify=crc32c --minimal
}
# Many requests under way in each queue.
verify_deep() {
  fio --name=deep --filename=$disk --ioengine=libaio --iodepth=32 --direct=1 --rw=randwrite --bsrange=4k-64k --blockalign=4k \
    --size=16M --fdatasync=32 --verify=crc32c --minimal
}
exercise() {
  printf '[opsize]\nmax = 16384\n[weights]\nfsync = 0.2\ntruncate = 1\nread = 2\nwrite = 2\nmapread = 1\nmapwrite = 1\n' > /tmp/fsx.toml
  fsx -N "$operations" -S 1 -P /tmp -f /tmp/fsx.toml /mnt/exercised > /tmp/fsx.log 2>&1 || { tail -n 3 /tmp/fsx.log; return 1; }
}
taken_over() { grep -q 'taken over' /tmp/serve.log; }
gone() { ! [ -e $disk ]; }

check "$mode: a volume" landfast volume create $volume --size 96M --mode $mode --emulate-persistence || exit 1
check "$mode: a disk" serve || exit 1
check "$mode: the kernel sends flushes" grep -q 'write back' /sys/block/ublkb0/queue/write_cache
check "$mode: fio verifies what it wrote" verify
check "$mode: fio verifies what it wrote with 32 requests under way" verify_deep
refused() { ! landfast volume serve $volume --ublk 0 --emulate-persistence; }
check "$mode: a second server is refused" refused
check "$mode: ext4 made" mkfs.ext4 -q -F $disk
check "$mode: mounted" mount -o discard $disk /mnt
check "$mode: fsx, $operations operations" exercise

# While a program writes and syncs, the server dies and comes back; no write of the program may fail or be lost.
write_files() {
  local number
  for ((number = 0; ; number++)); do
    head -c 20000 /dev/urandom > /mnt/file.$((number % 40)).new || return 1
    sync -f /mnt/file.$((number % 40)).new || return 1
    mv /mnt/file.$((number % 40)).new /mnt/file.$((number % 40))
    sha256sum < /mnt/file.$((number % 40)) > /tmp/sum.$((number % 40))
    [ -e /tmp/enough ] && break
  done
  echo $number > /tmp/written
}
write_files > /tmp/writer.log 2>&1 &
for ((kill = 1; kill <= kills; kill++)); do
  usleep 700000
  killed
  check "$mode: a server after kill $kill" serve || { cat /tmp/serve.log; exit 1; }
  check "$mode: it took the disk over" taken_over
done
# On a slow day the kills come faster than the files.
enough_files() { [ "$(ls /mnt/file.* | wc -l)" -gt 8 ]; }
check "$mode: it writes on behind the last kill" patiently enough_files
touch /tmp/enough
check "$mode: no write failed" patiently [ -e /tmp/written ]
same() {
  local path number
  [ "$(ls /mnt/file.* | wc -l)" -gt 5 ] || { ls -la /mnt; cat /tmp/writer.log; return 1; }
  echo 3 > /proc/sys/vm/drop_caches
  for path in /mnt/file.*; do
    number=${path##*.}
    [ "$(sha256sum < "$path")" = "$(cat "/tmp/sum.$number")" ] || { echo "$path"; return 1; }
  done
}
check "$mode: every file is as it was written" same
echo "# $mode: $(cat /tmp/written) files written"

# A server that is told to end waits until nobody uses the disk.
kill -TERM "$(cat /tmp/server)"
patiently grep -q 'is in use' /tmp/serve.log
check "$mode: a server that ends waits for the file system" grep -q 'is in use' /tmp/serve.log
check "$mode: unmounted" umount /mnt
check "$mode: it ends then" patiently is_over
check "$mode: the disk is gone" patiently gone
# Nor does it take the disk from a program that has it open without exclusion.
check "$mode: a disk for a program" serve
exec 9<> $disk
kill -TERM "$(cat /tmp/server)"
patiently grep -q 'is in use' /tmp/serve.log
check "$mode: a server that ends waits for a program, and names it" grep -q "is in use by process $$ " /tmp/serve.log
check "$mode: the program reads meanwhile" dd if=$disk of=/dev/null bs=4k count=16 iflag=direct status=none
exec 9>&-
check "$mode: it ends when the program has closed the disk" patiently is_over
check "$mode: a disk again" serve
check "$mode: sound" e2fsck -fn $disk
# What a server that was killed left behind is given to no other volume.
killed
check "$mode: another volume" landfast volume create $volume.other --size 96M --mode $mode --emulate-persistence
other() { landfast volume serve $volume.other --ublk 0 --emulate-persistence 2>&1 | grep -q "another volume"; }
check "$mode: another volume does not get the disk" other
check "$mode: its own gets it" serve
check "$mode: ended" end
[ $mode = file ] || check "$mode: whole" landfast volume check $volume
exit 0
