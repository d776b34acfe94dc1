# Volumes of mode block and Linux's BTT driver, in both directions, with a power cut.
#
#   bash /tests/btt.sh ours|theirs LIFE SECTOR
#
# ours: a volume that the host made. theirs: one that this kernel makes. LIFE: new, or again after a cut.
# /host has `image`, which the volume begins with, written by the host (ours) or here (theirs).
. /tests/report.sh
whose=$1 life=$2 sector=$3

modprobe -a nfit nd_pmem nd_btt 2> /dev/null
bus=/sys/bus/nd

make_btt() {
  local btt
  btt=$(ls $bus/devices | grep '^btt' | head -1)
  echo namespace0.0 > $bus/drivers/nd_pmem/unbind
  cat /proc/sys/kernel/random/uuid > $bus/devices/$btt/uuid
  echo "$sector" > $bus/devices/$btt/sector_size
  echo namespace0.0 > $bus/devices/$btt/namespace
  echo "$btt" > $bus/drivers/nd_pmem/bind
}

if [ "$whose $life" = "theirs new" ]; then
  patiently [ -e $bus/drivers/nd_pmem/namespace0.0 ]
  make_btt
fi
check "$whose, $life: Linux finds the volume" patiently [ -b /dev/pmem0s ]
check "$whose, $life: its sectors have $sector bytes" [ "$(blockdev --getss /dev/pmem0s)" = "$sector" ]
blockdev --getsize64 /dev/pmem0s | sed 's/^/size /'

length=$(stat -c %s /host/image)
if [ "$whose $life" = "theirs new" ]; then
  check "theirs: written" dd if=/host/image of=/dev/pmem0s bs=64k oflag=direct status=none
fi
same() { cmp -n "$length" /host/image /dev/pmem0s; }
check "$whose, $life: the image is there" same

# Sectors of one number each, behind the image, until the power is cut.
first=$((length / sector))
echo streaming
n=0
[ "$life" = again ] && n=1000000
while :; do
  n=$((n + 1))
  yes "$(printf %07d $n)" | head -c "$sector" |
    dd of=/dev/pmem0s bs="$sector" seek=$((first + n % 64)) oflag=direct conv=notrunc status=none
  echo "wrote $n"
done
