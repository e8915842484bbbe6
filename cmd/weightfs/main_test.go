package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"weightfs/fs"
	"weightfs/internal/testrel"
)

var update = flag.Bool("update", false, "rewrite the files that scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"weightfs":       main,
		"mount.weightfs": main,
		"fault-reader":   faultReader,
	})
}

// TestScripts runs the real main over testdata/*.txt.
func TestScripts(t *testing.T) {
	faults, err := filepath.Abs("../../testdata/faults")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache"))
			e.Setenv("HF_HOME", filepath.Join(e.WorkDir, "hf"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("FAULTS", faults)
			e.Values[ledgerKey{}] = &scriptLedger{}
			// A script that fails leaves its mount behind.
			e.Defer(func() { fs.Unmount(filepath.Join(e.WorkDir, "m"), true) })
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "fuse":
				_, err := os.Stat("/dev/fuse")
				return err == nil, nil
			case "root":
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"release":  writeRelease,
			"shard":    writeShard,
			"hub":      startHub,
			"ledger":   writeLedger,
			"files":    startFiles,
			"hubcache": writeHubCache,
			"exits":    exits,
			"crash":    crash,
			"fetched":  fetched,
			"mounted":  mounted,
			"gone":     gone,
			"appears":  appears,
		},
	})
}

// writeRelease is "release NAME DIR": it writes a release of internal/testrel as plain files.
func writeRelease(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: release NAME DIR")
	}
	for _, r := range testrel.ByName(args[0]) {
		ts.Check(testrel.WriteDir(ts.MkAbs(args[1]), r))
		return
	}
	ts.Fatalf("no release %s", args[0])
}

// exits is "exits CODE PROGRAM ARGS...": the program must end with that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// writeShard is "shard FILE JSON BYTES": a safetensors file with that header, spelled out, and so many bytes of data.
func writeShard(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: shard FILE JSON BYTES")
	}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(args[1])))
	b = append(append(b, args[1]...), make([]byte, n)...)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o666))
}

// crash is "crash DIR": the process behind the mount at DIR is ended with SIGKILL.
func crash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: crash DIR")
	}
	s, err := readStatus(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(unix.Kill(s.PID, unix.SIGKILL))
	waitFor(context.Background(), s.PID)
}

// fetched is "fetched DIR BYTES": it waits until the mount at DIR has fetched so many bytes.
func fetched(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fetched DIR BYTES")
	}
	want, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	until(ts, args[1]+" bytes fetched by "+args[0], func() bool {
		s, err := readStatus(ts.MkAbs(args[0]))
		ts.Check(err)
		return s.Bytes.Fetched >= want
	})
}

// until polls a condition for at most 10 s.
func until(ts *testscript.TestScript, what string, ok func() bool) {
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("not in time: %s", what)
}

// mounted is "mounted DIR": it waits until a mount answers there. gone is "gone DIR": it waits until nothing is mounted there.
func mounted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mounted DIR")
	}
	until(ts, "a mount at "+args[0], func() bool { _, err := readStatus(ts.MkAbs(args[0])); return err == nil })
}

func gone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone DIR")
	}
	until(ts, "no mount at "+args[0], func() bool { _, err := readStatus(ts.MkAbs(args[0])); return errors.Is(err, os.ErrNotExist) })
}

// appears is "appears FILE": it waits until the file is there.
func appears(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: appears FILE")
	}
	until(ts, args[0], func() bool { _, err := os.Stat(ts.MkAbs(args[0])); return err == nil })
}

// TestSecondSignal: a command that does not heed a signal, here because nobody takes what it writes, ends with a second one.
func TestSecondSignal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "big.txt"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("weightfs", "cat", dir, "release/big.txt")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1)) // it is at work
	}
	if err != nil {
		t.Fatal(err)
	}
	deaf := time.AfterFunc(time.Minute, func() { t.Error("it goes on for a minute"); c.Process.Kill() })
	defer deaf.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		select {
		case err = <-ended:
		case <-again.C:
			c.Process.Signal(unix.SIGTERM)
			continue
		}
		break
	}
	if err == nil {
		t.Error("it was ended by a signal, and says that it did all")
	}
}
