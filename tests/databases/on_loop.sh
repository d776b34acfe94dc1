#!/bin/sh
# Makes a volume of Landfast, serves it as a loop device, mounts an ext4 on it, and runs a check with that mount:
#   on_loop.sh LANDFAST DISK PROGRAM...
# Ends with 77 where the host has no loop devices, no FUSE, or no right to use them.
set -eu
landfast=$1 disk=$2
shift 2
[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] || exit 77
memory=$(mktemp -d /dev/shm/landfast-loop-XXXXXX)
mkdir "$memory/volumes" "$memory/mount"
chmod 755 "$memory" "$disk"
"$landfast" volume create "$memory/disk0" --size 512M --emulate-persistence
"$landfast" volume serve "$memory/disk0" --fuse "$memory/volumes" --loop --emulate-persistence >"$memory/said" 2>&1 &
server=$!
end() {
    umount "$memory/mount" 2>/dev/null || true
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    rm -rf "$memory"
}
trap end EXIT
tries=0
until device=$(grep -o '/dev/loop[0-9]*' "$memory/said" | head -1) && [ -n "$device" ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ] || ! kill -0 "$server" 2>/dev/null; then cat "$memory/said"; exit 77; fi
    sleep 0.1
done
mkfs.ext4 -q -E nodiscard "$device"
mount "$device" "$memory/mount" || exit 77
chmod 777 "$memory/mount"
"$@" "$memory/mount" --directory "$disk"
