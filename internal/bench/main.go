// Command bench measures weightfs beside what the machine can do and beside what people would use instead, on loopback servers with
// simulated latency and rate. Everything is a ratio: floors and rivals are measured in the same run, interleaved with weightfs, and medians
// over rounds are compared. docs/performance.md has the method and results; make bench runs it.
//
// Servers are processes of weightfs demo --hub. Readers are processes of this program: a mount must not be read by whoever serves it,
// and what is measured begins when such a process is ready to read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

type options struct {
	weightfs string
	dir      string
	only     string
	rounds   int
	quick    bool
	json     string
	markdown string
	keep     bool
	list     bool
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == childArg {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	if len(os.Args) == 4 && os.Args[1] == plainArg {
		fail(servePlain(os.Args[2], os.Args[3]))
		return
	}
	var o options
	flag.StringVar(&o.weightfs, "weightfs", "build/weightfs", "the `program` to measure")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "`DIR` on a real disk for releases, caches and mounts; 10 GB")
	flag.StringVar(&o.only, "only", "", "only workloads that match this regular `EXPRESSION`")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds, of which medians are taken")
	flag.BoolVar(&o.quick, "quick", false, "less of everything, one round: to see that it works")
	flag.StringVar(&o.json, "json", "", "write all samples and rows to `FILE`")
	flag.StringVar(&o.markdown, "markdown", "", "put the table into `FILE` between its markers")
	flag.BoolVar(&o.keep, "keep", false, "leave the directory with releases, caches and logs behind")
	flag.BoolVar(&o.list, "list", false, "print the workloads")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unknown argument %q; --only 'EXPRESSION' picks workloads", flag.Arg(0)))
	}
	fail(run(o))
}

// fail ends the program if there is an error.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	// Children die with the thread that started them: keep it.
	runtime.LockOSThread()
	// They inherit its priority: what else runs on the machine shall not be measured. Without the right to it, it is.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -19)
	defer favour("-19")()
	if o.list {
		for _, w := range workloads() {
			fmt.Printf("%-16s %s\n", w.name, w.what)
		}
		return nil
	}
	if o.quick {
		o.rounds = 1
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(workloads(), func(w workload) bool { return only.MatchString(w.name) }) {
		return fmt.Errorf("no workload matches %q; --list prints them", o.only)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	err = b.rounds(only)
	b.cleanUp()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	return b.report()
}

// favour sets the priority of this session among others, where the kernel divides time by session, and returns what sets it back.
func favour(nice string) (back func()) {
	const file = "/proc/self/autogroup"
	old, err := os.ReadFile(file)
	_, was, ok := strings.Cut(strings.TrimSpace(string(old)), " nice ")
	if err != nil || !ok || os.WriteFile(file, []byte(nice), 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(file, []byte(was), 0) }
}

// rounds runs every workload once in each round, so that noise of the machine meets all of them.
func (b *bench) rounds(only *regexp.Regexp) error {
	for r := range b.opt.rounds {
		for _, w := range workloads() {
			if !only.MatchString(w.name) || w.once && r > 0 {
				continue
			}
			b.note("round %d of %d: %s", r+1, b.opt.rounds, w.name)
			err := w.run(b)
			b.endAll()
			if err == nil {
				err = b.ctx.Err()
			}
			if errors.Is(err, errSkip) {
				b.note("  left out: %v", err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

// errSkip is wrapped by the reason why a workload cannot run here.
var errSkip = errors.New("not here")
