# The kernel's client with the SMB3 POSIX extensions: modes, owners, links, names, files that are open while their name goes.
# usage: posix.sh tcp|rdma PORT SHARE USER PASSWORD root|other
. /tests/report.sh
wire=$1 port=$2 share=$3 user=$4 password=$5 server=$6
cache=strict
. /tests/cifs.inc
umask 022

anew() {
  umount /mnt && attach plain "posix${1:+,$1}"
}

is() {
  [ "$1" = "$2" ] || { echo "$1 instead of $2"; return 1; }
}

refused() {
  ! "$@" 2> /dev/null || { echo "$* went through"; return 1; }
}

negotiated() {
  grep -q ' /mnt cifs .*,posix' /proc/mounts || { grep /mnt /proc/mounts; return 1; }
}

modes() {
  set -e
  mkdir /mnt/modes && cd /mnt/modes
  touch plain
  (umask 077 && touch private && mkdir closed)
  # cifs.ko shows the mount's own mode of what it has just made until it asks the server.
  cd / && anew && cd /mnt/modes
  is "$(stat -c %a plain private closed | tr '\n' ' ')" '644 600 700 '
  install -m 751 /dev/null program
  mkdir -m 1777 sticky
  chmod 2770 closed
  chmod 0 private
  cd / && anew && cd /mnt/modes
  is "$(stat -c %a plain private program sticky closed | tr '\n' ' ')" '644 0 751 1777 2770 '
  echo still > still && chmod 444 still && rm -f still
  (umask 777 && echo written > locked)
  chmod 600 locked && is "$(cat locked)" written
  # The right to run as the file's owner would be the server's.
  refused chmod 4755 program
  is "$(stat -c %a program)" 751
  cd /
}

# cifs.ko says by itself who is meant (S-1-5-88); otherwise it asks a program of the client's for names.
owners() {
  set -e
  anew idsfromsid
  touch /mnt/owned
  if [ "$server" = root ]; then
    chown 1234:5678 /mnt/owned
    anew idsfromsid
    is "$(stat -c %u:%g /mnt/owned)" 1234:5678
  else
    refused chown 1234:5678 /mnt/owned
  fi
}

# Without the extensions: the mode in an access list.
access_lists() {
  set -e
  local by=modefromsid,idsfromsid
  umount /mnt && attach plain $by && cd /mnt
  touch listed
  (umask 077 && touch unlisted)
  chmod 751 listed
  cd / && umount /mnt && attach plain $by
  is "$(stat -c %a /mnt/listed /mnt/unlisted | tr '\n' ' ')" '751 600 '
}

hard_links() {
  set -e
  echo one > /mnt/first
  ln /mnt/first /mnt/second
  is "$(stat -c %h /mnt/first)" 2
  is "$(stat -c %i /mnt/first)" "$(stat -c %i /mnt/second)"
  echo two >> /mnt/second
  is "$(cat /mnt/first)" $'one\ntwo'
  rm /mnt/first
  anew
  is "$(stat -c %h /mnt/second)" 1
}

symbolic_links() {
  set -e
  mkdir -p /mnt/links/deep && cd /mnt/links
  echo here > file
  ln -s file near
  ln -s ../file deep/up
  ln -s deep directory
  ln -s nothing dangling
  is "$(readlink near) $(readlink deep/up) $(readlink dangling)" 'file ../file nothing'
  is "$(cat near deep/up directory/up | tr '\n' ' ')" 'here here here '
  refused cat dangling
  refused ln -s /etc/passwd out
  refused ln -s ../../out out
  cd / && anew && cd /mnt/links
  is "$(stat -c %F near directory file | tr '\n' ' ')" 'symbolic link symbolic link regular file '
  is "$(ls -F | tr '\n' ' ')" 'dangling@ deep/ directory@ file near@ '
  mv near moved
  is "$(readlink moved)" file
  rm moved directory
  is "$(cat file deep/up | tr '\n' ' ')" 'here here '
  cp -a /mnt/links /tmp/links
  is "$(readlink /tmp/links/deep/up)" ../file
  cd /
}

special='a:b trailing. * what? <x> "q" a|b Name name'

names() {
  set -e
  local name
  mkdir "/mnt/$1" && cd "/mnt/$1"
  set -f
  for name in $special 'space '; do echo "$name" > "$name"; done
  cd / && anew "$2" && cd "/mnt/$1"
  for name in $special 'space '; do is "$(cat "./$name")" "$name"; done
  is "$(ls | sort | tr '\n' /)" "$(for name in $special 'space '; do echo "$name"; done | sort | tr '\n' /)"
  set +f
  refused cat NAME
  cd /
}

# While a client has a file open, cifs.ko looks its name up by that handle, and finds what is gone: the new
# mount at the end shows what the names stand for.
open_while() {
  set -e
  cd /mnt
  echo before > gone
  exec 5>> gone 6< gone
  rm gone
  echo after >&5
  is "$(cat <&6)" $'before\nafter'
  is "$(ls | grep gone)" ""
  exec 5>&- 6<&-
  [ ! -e gone ]
  echo old > target
  exec 6< target
  echo new > newer
  mv newer target
  is "$(cat <&6)" old
  exec 6<&-
  mkdir -p tree/below
  exec 5> tree/below/file
  mv tree other
  echo through >&5
  exec 5>&-
  is "$(cat other/below/file)" through
  cd / && anew
  is "$(cat /mnt/target /mnt/other/below/file | tr '\n' ' ')" 'new through '
}

volume() {
  set -e
  is "$(stat -f -c '%b %S' /mnt)" "$(cat /mnt/.volume)"
  [ "$(stat -f -c %c /mnt)" -gt 0 ]
}

# shows DIRECTORY: kind, mode, size and target of everything below.
shows() {
  (cd "$1" && find . ! -type d | sort | while read -r file; do stat -c '%A %s %N' "$file"; done)
}

tree() {
  cp -a /usr/lib/udev /usr/share/bash-completion /tmp/tree 2> /dev/null || cp -a /usr/lib/udev /tmp/tree
  ln -s 60-block.rules /tmp/tree/a-link
  cp -dR --preserve=mode,links /tmp/tree /mnt/tree && anew && shows /tmp/tree > /tmp/here && shows /mnt/tree | diff - /tmp/here && rm -r /mnt/tree && wc -l < /tmp/here
}

reach
check "$wire: mount -o posix" attach plain posix || exit 1
check "$wire: negotiated" negotiated
for step in modes owners access_lists hard_links symbolic_links open_while volume tree; do
  check "$wire: $step" $step
  cd / && umount /mnt && attach plain posix
done
check "$wire: names, mapped by the client" names mapped
cd / && umount /mnt && attach plain posix,nomapposix
check "$wire: names, as they are" names plain nomapposix
cd /
check "$wire: unmount" umount /mnt
exit 0
