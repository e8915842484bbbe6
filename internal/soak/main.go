// Command soak mounts releases from a stand-in hub and lets everything go wrong at random: requests that fail, a hub that goes away,
// daemons that are killed, caches that are damaged or full, memory that is short. Readers in processes of their own compare every
// byte they get with the truth. It ends with 1 if one byte was wrong, a read failed that need not, something hung, or something
// was left behind. The same seed makes the same plan.
//
// Real proxies stand between the daemons and the hub in some rounds, and fio verifies beside the readers, where they are installed.
//
//	soak [-for 30m] [-seed N] [-from N] [-rounds N] [-bin build/weightfs] [-proxy NAME] [-v]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"weightfs/internal/testrel"
)

// options are what a run can be told.
type options struct {
	lasts  time.Duration
	seed   uint64
	from   int // the first round
	rounds int // 0 is as many as fit
	bin    string
	detail bool
	proxy  string   // before the hub in every round, if it is installed
	only   []string // releases; none is all small ones
}

func main() {
	if os.Getenv(readerEnv) != "" {
		os.Exit(readerMain(os.Stdin, os.Stdout))
	}
	var o options
	flag.DurationVar(&o.lasts, "for", 30*time.Minute, "how long rounds are begun")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the plan")
	flag.IntVar(&o.from, "from", 0, "the first round; what earlier ones left in the cache is then missing")
	flag.IntVar(&o.rounds, "rounds", 0, "end after so many rounds")
	flag.StringVar(&o.bin, "bin", "build/weightfs", "the program")
	flag.BoolVar(&o.detail, "v", false, "print every round")
	flag.StringVar(&o.proxy, "proxy", "", "put nginx, haproxy, varnish or squid before the hub in every round")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	total, err := run(ctx, o, os.Stdout)
	fmt.Println(total)
	if err != nil {
		fmt.Fprintf(os.Stderr, "soak: %v\n", err)
		os.Exit(1)
	}
}

// run does rounds until the time is over or one fails, and says what was done.
func run(ctx context.Context, o options, out io.Writer) (*totals, error) {
	total := &totals{began: time.Now()}
	if err := needFUSE(); err != nil {
		return total, err
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return total, err
	}
	home, err := os.MkdirTemp("", "weightfs-soak-")
	if err != nil {
		return total, err
	}
	defer os.RemoveAll(home)
	w := &world{bin: bin, home: home, total: total, addr: hubAddr, releases: testrel.Small()}
	if len(o.only) > 0 {
		w.releases = slices.DeleteFunc(w.releases, func(r *testrel.Release) bool { return !slices.Contains(o.only, r.Name) })
	}
	defer w.close()
	if err := w.prepare(ctx); err != nil {
		return total, fmt.Errorf("before the first round: %w", err)
	}
	fmt.Fprintf(out, "soak: seed %d\n", o.seed)
	end := time.Now().Add(o.lasts)
	for n := o.from; ctx.Err() == nil && (o.rounds == 0 || n < o.from+o.rounds) && time.Now().Before(end); n++ {
		p := draw(o.seed, n)
		if o.proxy != "" {
			p = p.behind(o.proxy)
		}
		if o.detail {
			fmt.Fprintf(out, "%s\n", p)
		}
		if err := w.round(ctx, p); err != nil {
			return total, fmt.Errorf("seed %d: %s: %w\nagain: soak -seed %d -rounds %d", o.seed, p, err, o.seed, n+1)
		}
		total.rounds++
	}
	if len(w.absent) > 0 {
		fmt.Fprintf(out, "soak: NOT RUN, not installed: %s\n", strings.Join(w.absent, ", "))
	}
	return total, nil
}

func needFUSE() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("soak mounts: %w", err)
	}
	return f.Close()
}
