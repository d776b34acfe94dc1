// go-smb2, the SMB client most programs in Go use, against a server.
//
// Prints one line a check, as report.py does: "ok NAME" or "FAIL NAME: evidence". Each dialect logs in on
// a connection of its own, lists the shares, and takes files and directories through their life; on a
// share that wants encryption again. Run by `cargo xtask interop go`.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	iofs "io/fs"
	"net"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/hirochachacha/go-smb2"
)

var (
	address  = flag.String("address", "", "host and port of the server")
	share    = flag.String("share", "", "a share for reading and writing")
	sealed   = flag.String("sealed", "", "a share that requires encryption, if there is one")
	user     = flag.String("user", "", "who logs in; the password comes in LANDFAST_PASSWORD")
	failures = 0
)

type dialect struct {
	name    string
	number  uint16
	encrypt bool
}

// 0 offers them all.
var dialects = []dialect{
	{"2.0.2", 0x0202, false},
	{"2.1", 0x0210, false},
	{"3.0", 0x0300, true},
	{"3.0.2", 0x0302, true},
	{"3.1.1", 0x0311, true},
	{"any", 0, true},
}

func check(name string, body func() error) {
	err := guarded(body)
	if err == nil {
		fmt.Println("ok go-smb2", name)
		return
	}
	failures++
	evidence := strings.Join(strings.Fields(err.Error()), " ")
	fmt.Printf("FAIL go-smb2 %s: %s\n", name, evidence)
}

// A client that panics is evidence like any other.
func guarded(body func() error) (err error) {
	defer func() {
		if found := recover(); found != nil {
			err = fmt.Errorf("panic: %v", found)
		}
	}()
	return body()
}

func connect(number uint16, password string) (*smb2.Session, func(), error) {
	tcp, err := net.DialTimeout("tcp", *address, patience)
	if err != nil {
		return nil, nil, err
	}
	tcp.SetDeadline(time.Now().Add(patience))
	dialer := &smb2.Dialer{
		Negotiator: smb2.Negotiator{RequireMessageSigning: true, SpecifiedDialect: number},
		Initiator:  &smb2.NTLMInitiator{User: *user, Password: password},
	}
	session, err := dialer.Dial(tcp)
	if err != nil {
		tcp.Close()
		return nil, nil, err
	}
	return session, func() { session.Logoff(); tcp.Close() }, nil
}

// Bytes in which every word names its own place.
func pattern(length int, seed uint64) []byte {
	out := make([]byte, 0, length+8)
	for n := uint64(0); len(out) < length; n++ {
		out = binary.LittleEndian.AppendUint64(out, seed*1_000_003+n)
	}
	return out[:length]
}

func expect(what string, found, wanted interface{}) error {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		return fmt.Errorf("%s: found %v, wanted %v", what, found, wanted)
	}
	return nil
}

// first returns the first thing that went wrong.
func first(problems ...error) error {
	for _, problem := range problems {
		if problem != nil {
			return problem
		}
	}
	return nil
}

func names(mount *smb2.Share, directory string) ([]string, error) {
	entries, err := mount.ReadDir(directory)
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	sort.Strings(found)
	return found, err
}

func contents(mount *smb2.Share, top string) error {
	for _, length := range []int{0, 1, 4096, 65536, 1<<20 + 3} {
		name := fmt.Sprintf(`%s\%d bytes ☂.bin`, top, length)
		data := pattern(length, uint64(length))
		if err := mount.WriteFile(name, data, 0o644); err != nil {
			return fmt.Errorf("writing %d bytes: %w", length, err)
		}
		back, err := mount.ReadFile(name)
		if err != nil || !bytes.Equal(back, data) {
			return fmt.Errorf("%d bytes came back as %d, %v", length, len(back), err)
		}
		info, err := mount.Stat(name)
		if err != nil {
			return err
		}
		if err := expect("size", info.Size(), length); err != nil {
			return err
		}
	}
	return nil
}

func pieces(mount *smb2.Share, top string) error {
	name := top + `\pieces`
	file, err := mount.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	data := pattern(10_000, 7)
	_, beyond := file.WriteAt(data, 5_000)
	sync := file.Sync()
	back := make([]byte, 7_500)
	_, read := file.ReadAt(back, 2_500)
	if err := first(beyond, sync, read); err != nil {
		return err
	}
	if !bytes.Equal(back[:2_500], make([]byte, 2_500)) || !bytes.Equal(back[2_500:], data[:5_000]) {
		return errors.New("what was written in the middle is not read back")
	}
	cut := file.Truncate(6_000)
	_, end := file.Seek(0, io.SeekEnd)
	_, eof := file.Read(back)
	if eof != io.EOF {
		return fmt.Errorf("reading at the end: %v", eof)
	}
	info, stat := file.Stat()
	if err := first(cut, end, stat); err != nil {
		return err
	}
	if _, err := mount.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); !os.IsExist(err) {
		return fmt.Errorf("made twice: %v", err)
	}
	return expect("size after truncating", info.Size(), 6_000)
}

func serverCopy(mount *smb2.Share, top string) error {
	data := pattern(3<<20, 11)
	if err := mount.WriteFile(top+`\original`, data, 0o644); err != nil {
		return err
	}
	original, err := mount.Open(top + `\original`)
	if err != nil {
		return err
	}
	defer original.Close()
	copied, err := mount.Create(top + `\copy`)
	if err != nil {
		return err
	}
	// Both files are the server's, so this is FSCTL_SRV_COPYCHUNK.
	_, err = io.Copy(copied, original)
	if err := first(err, copied.Close()); err != nil {
		return err
	}
	back, err := mount.ReadFile(top + `\copy`)
	if err == nil && !bytes.Equal(back, data) {
		return errors.New("the copy differs")
	}
	return err
}

func metadata(mount *smb2.Share, top string) error {
	name := top + `\dated`
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := first(mount.WriteFile(name, []byte("x"), 0o644), mount.Chtimes(name, when, when)); err != nil {
		return err
	}
	info, err := mount.Stat(name)
	if err != nil {
		return err
	}
	if err := expect("time of the last write", info.ModTime().UTC(), when); err != nil {
		return err
	}
	if err := mount.Chmod(name, 0o444); err != nil {
		return err
	}
	info, err = mount.Stat(name)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o200 != 0 {
		return fmt.Errorf("still writable: %v", info.Mode())
	}
	volume, err := mount.Statfs(top)
	if err != nil || volume.TotalBlockCount() == 0 {
		return fmt.Errorf("the volume: %v", err)
	}
	return mount.Chmod(name, 0o644)
}

func tree(mount *smb2.Share, top string) error {
	deep := top + `\a\b\c`
	if err := mount.MkdirAll(deep, 0o755); err != nil {
		return err
	}
	for n := 0; n < 200; n++ {
		if err := mount.WriteFile(fmt.Sprintf(`%s\%03d-with-a-longer-name`, deep, n), nil, 0o644); err != nil {
			return err
		}
	}
	found, err := names(mount, deep)
	if err := first(err, expect("names", len(found), 200)); err != nil {
		return err
	}
	visited := 0
	// Paths of io/fs have forward slashes.
	root := mount.DirFS(top + `\a`)
	err = iofs.WalkDir(root, ".", func(string, iofs.DirEntry, error) error { visited++; return nil })
	if err := first(err, expect("visited", visited, 203)); err != nil {
		return err
	}
	if err := mount.Rename(top+`\a\b`, top+`\moved`); err != nil {
		return err
	}
	if err := mount.Rename(top+`\moved\c\000-with-a-longer-name`, top+`\first`); err != nil {
		return err
	}
	if err := mount.Remove(top + `\moved`); err == nil {
		return errors.New("a directory that is not empty was removed")
	}
	if err := mount.RemoveAll(top + `\moved`); err != nil {
		return err
	}
	if _, err := mount.Stat(top + `\moved`); !os.IsNotExist(err) {
		return fmt.Errorf("still there: %v", err)
	}
	return mount.Remove(top + `\first`)
}

func live(label string, number uint16, shareName string, directory string) {
	session, end, err := connect(number, os.Getenv("LANDFAST_PASSWORD"))
	check(label+" log in", func() error { return err })
	if err != nil {
		return
	}
	defer end()
	check(label+" list of shares", func() error {
		found, err := session.ListSharenames()
		if err == nil && !strings.Contains(","+strings.Join(found, ",")+",", ","+shareName+",") {
			return fmt.Errorf("%v", found)
		}
		return err
	})
	mount, err := session.Mount(shareName)
	check(label+" mount", func() error { return err })
	if err != nil {
		return
	}
	defer mount.Umount()
	check(label+" make a directory", func() error { return mount.Mkdir(directory, 0o755) })
	for _, one := range []struct {
		name string
		body func(*smb2.Share, string) error
	}{
		{"write and read whole files", contents},
		{"write, read and cut in pieces", pieces},
		{"copy on the server", serverCopy},
		{"times, modes and the volume", metadata},
		{"directories, renames and removals", tree},
	} {
		body := one.body
		check(label+" "+one.name, func() error { return body(mount, directory) })
	}
	check(label+" remove it all", func() error {
		if err := mount.RemoveAll(directory); err != nil {
			return err
		}
		found, err := names(mount, "")
		if err == nil && strings.Contains(strings.Join(found, ","), directory) {
			return fmt.Errorf("left: %v", found)
		}
		return err
	})
}

func main() {
	flag.Parse()
	for _, one := range dialects {
		live(one.name+" signed", one.number, *share, "go "+one.name)
		if one.encrypt && *sealed != "" {
			live(one.name+" encrypted", one.number, *sealed, "go sealed "+one.name)
		}
		name := one.name + " wrong password"
		check(name, func() error {
			_, end, err := connect(one.number, "not the password")
			if err == nil {
				end()
				return errors.New("logged in")
			}
			if !strings.Contains(strings.ToLower(err.Error()), "logon") {
				return err
			}
			return nil
		})
	}
	if failures > 0 {
		os.Exit(1)
	}
}

// Longest one connection may take.
const patience = 60 * time.Second
