package main

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weightfs/internal/hubtest"
	"weightfs/internal/testrel"
)

const demoHelp = `demo shows what weightfs does on loopback, with no network and with releases made from nothing: it writes small ones to a directory,
serves them and one of 2.5 TB that is on no disk from a stand-in hub, mounts them, reads through the mount and compares every byte it
read with values known in closed form.

Its other forms are for programs that check weightfs from outside: --write makes the releases as plain files, --hub is the stand-in hub
in the foreground.`

// demoFlags are the flags of demo.
type demoFlags struct {
	write     string
	only      []string
	hub       string
	root, log string
	latency   time.Duration
	rate      sizeFlag
	faults    string
	peers     bool
	selfcheck bool
}

func newDemoCommand(u *ui) *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:   "demo",
		Short: "Everything, on this machine, with no network",
		Long:  demoHelp,
		Example: `  weightfs demo
  weightfs demo --write /tmp/d && weightfs mount /tmp/d/demo/qwen-fp8 /mnt/q
  weightfs demo --hub 127.0.0.1:8080 --root /tmp/d --latency 20ms --rate 50MB --log /tmp/d/requests.jsonl
  HF_ENDPOINT=http://127.0.0.1:8080 weightfs ls hf://demo/qwen-fp8`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), u) },
	}
	flags := c.Flags()
	flags.BoolVar(&f.selfcheck, "selfcheck", false, "serve, mount, read and compare; what demo does unless told otherwise")
	flags.StringVar(&f.write, "write", "", "write releases as plain files to `DIR`/demo/NAME/")
	flags.StringSliceVar(&f.only, "only", nil, "only these `NAMES` or groups (with --write or --selfcheck); without it all small ones")
	flags.StringVar(&f.hub, "hub", "", "be the stand-in hub at `ADDR` (host:port, port 0 is any free one)")
	flags.StringVar(&f.root, "root", "", "`DIR` whose demo/NAME/ the hub serves as demo/NAME (with --hub)")
	flags.StringVar(&f.log, "log", "", "append one JSON line for each request to `FILE` (with --hub)")
	flags.DurationVar(&f.latency, "latency", 0, "before the first byte of every reply (with --hub)")
	flags.Var(&f.rate, "rate", "bytes a second for each connection (with --hub)")
	flags.StringVar(&f.faults, "faults", "", "`FILE` with a fault plan for the hub (with --hub or --selfcheck)")
	flags.BoolVar(&f.peers, "peers", false, "")
	flags.MarkHidden("peers")
	return c
}

func (f *demoFlags) run(ctx context.Context, u *ui) error {
	if f.write != "" && f.hub != "" || f.selfcheck && f.write+f.hub != "" {
		return usageError{"--write, --hub and --selfcheck are three forms of demo", "give one of them"}
	}
	for _, name := range f.only {
		if !testrel.Known(name) {
			return usageError{fmt.Sprintf("demo knows no release %q", name), "it knows " + strings.Join(testrel.Names(), ", ")}
		}
	}
	switch {
	case f.write != "":
		return f.writeReleases(u)
	case f.hub != "":
		return f.serveHub(ctx, u)
	}
	return f.check(ctx, u)
}

// writeReleases writes the small releases, or those named.
func (f *demoFlags) writeReleases(u *ui) error {
	releases := testrel.Small()
	if len(f.only) > 0 {
		releases = named(f.only)
	}
	for _, r := range releases {
		dir := filepath.Join(f.write, "demo", r.Name)
		if err := testrel.WriteDir(dir, r); err != nil {
			return err
		}
		note := ""
		if r.HeaderOnly {
			note = ", headers only: the tensors are holes"
		}
		u.printf("%s: %d files, %s%s\n", dir, len(r.Files), size(r.Bytes()), note)
	}
	return nil
}

func named(names []string) []*testrel.Release {
	var out []*testrel.Release
	for _, name := range names {
		out = append(out, testrel.ByName(name)...)
	}
	return out
}

// serveHub is the stand-in hub until the context ends. It prints its URL on a line of its own.
func (f *demoFlags) serveHub(ctx context.Context, u *ui) error {
	cfg := hubtest.Config{Addr: f.hub, Root: f.root, Latency: f.latency, Rate: int64(f.rate), Make: demoRelease, Peers: f.peers}
	if f.log != "" {
		log, closeLog, err := hubtest.FileLog(f.log)
		if err != nil {
			return err
		}
		defer closeLog()
		cfg.Log = log
	}
	if f.faults != "" {
		plan, err := f.plan()
		if err != nil {
			return err
		}
		cfg.Plan = plan
	}
	h, err := hubtest.Start(cfg)
	if err != nil {
		return err
	}
	defer h.Close()
	u.printf("%s\n", h.URL)
	u.notef("the stand-in hub; its CDN is %s. Use it with HF_ENDPOINT=%s; ^C ends it", h.CDN, h.URL)
	<-ctx.Done()
	return nil
}

func (f *demoFlags) plan() (*hubtest.Plan, error) {
	p, err := hubtest.ReadPlan(f.faults)
	if err != nil {
		err = usageError{err.Error(), "testdata/faults has examples; what may stand in a plan is said with hubtest.Plan"}
	}
	return p, err
}

// demoRelease makes the release that the hub calls demo/NAME when it is on no disk.
func demoRelease(repo string) *testrel.Release {
	org, name := path.Split(repo)
	if org != "demo/" {
		return nil
	}
	for _, r := range testrel.ByName(name) {
		if r.Name == name {
			return r
		}
	}
	return nil
}
