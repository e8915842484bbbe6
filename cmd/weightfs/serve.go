package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/cobra"

	"weightfs/fs"
)

// serveFlags are what serve can be told.
type serveFlags struct {
	mountFlags
	listen   string
	authFile string
	door     fs.HTTPOptions
}

func newServeCommand(u *ui) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve SOURCE...",
		Short: "Serve the tree over HTTP, with ranges",
		Long: `Serve the tree over HTTP: GET and HEAD with ranges and strong ETags, directories as a list of names (or JSON), counters at /metrics.
Whoever reaches the address reads with your token; a gated or private source is served to other machines only with --auth-token-file.`,
		Example: "  weightfs serve hf://Qwen/Qwen3-30B-A3B-FP8 --listen 127.0.0.1:8480",
		Args:    args(1, -1),
		RunE:    func(c *cobra.Command, args []string) error { return f.run(c.Context(), u, args) },
	}
	f.addTo(c.Flags())
	c.Flags().Var(&f.onError, "on-error", "a read whose source fails for the moment waits so long (soft:60s) or for ever (hard)")
	c.Flags().StringVar(&f.view, "view", "", "serve one `PATH` of the tree at the root")
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8480", "`ADDRESS` to listen on; port 0 is any free one")
	c.Flags().StringSliceVar(&f.door.Hosts, "host", nil, "`NAME` that the server answers to beside localhost")
	c.Flags().StringSliceVar(&f.door.Origins, "origin", nil, "`ORIGIN` (https://host) whose pages may read, beside pages of this machine")
	c.Flags().StringVar(&f.authFile, "auth-token-file", "", "`FILE` with a token that every client must send")
	return c
}

func (f *serveFlags) run(ctx context.Context, u *ui, sources []string) (err error) {
	if err := checkListen(f.listen); err != nil {
		return err
	}
	if f.door.Token, err = readToken(f.authFile); err != nil {
		return err
	}
	m, err := f.prepare(ctx, u, sources)
	if err != nil {
		return err
	}
	defer m.close()
	l, err := m.listen(f.listen, f.door.Token != "")
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String() + "/"
	if u.json {
		u.printLine(map[string]string{"url": url})
	} else {
		u.printf("%s\n", url)
	}
	m.fetchBehind(nil)
	return m.serve(ctx, l, m.fs.Handler(f.door))
}

// checkListen refuses an address that cannot be understood. Whether this machine has it shows when it is listened on.
func checkListen(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return usageError{fmt.Sprintf("--listen %q is no address to listen on", addr), "write HOST:PORT: 127.0.0.1:8480, [::1]:8480; :8480 is every address of this machine"}
	}
	return nil
}

// readToken is the token in a file, "" for no file.
func readToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, err := flagFile("auth-token-file", name)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < 16 {
		return "", usageError{fmt.Sprintf("the token in %s is too short", name), "openssl rand -hex 32 makes a good one"}
	}
	return token, nil
}

// listen refuses to hand what a token opened to other machines.
func (m *mounting) listen(addr string, asksToken bool) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, hinted{err, "another port: --listen 127.0.0.1:0 takes any free one"}
	}
	if asksToken || l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return l, nil
	}
	for _, o := range m.releases {
		if o.listing.Gated {
			l.Close()
			return nil, hinted{fmt.Errorf("%s is gated or private, and %s can be reached from other machines", o.listing.Name, addr),
				"listen on 127.0.0.1, or let clients send a token: --auth-token-file"}
		}
	}
	return l, nil
}

// Limits that keep slow clients from holding connections.
const (
	headerWait   = 10 * time.Second
	idleWait     = 2 * time.Minute
	shutdownWait = 5 * time.Second
)

// serve answers requests until ctx ends.
func (m *mounting) serve(ctx context.Context, l net.Listener, tree http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("/", tree)
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/.weightfs/" + metricsName // so that the tree's door decides who may
		tree.ServeHTTP(w, r)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerWait, IdleTimeout: idleWait}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		server.Close()
	}
	<-done
	return nil
}

const metricsName = "metrics.txt"

// metrics are the counters of status.json in Prometheus' form.
func (m *mounting) metrics() []byte {
	set := metrics.NewSet()
	status := m.fs.Status()
	for name, value := range map[string]func(fs.Status) int64{
		"fetched_bytes_total": func(s fs.Status) int64 { return s.Bytes.Fetched },
		"cached_bytes_total":  func(s fs.Status) int64 { return s.Bytes.Cached },
		"served_bytes_total":  func(s fs.Status) int64 { return s.Bytes.Served },
		"reads_total":         func(s fs.Status) int64 { return s.Reads },
		"errors_total":        func(s fs.Status) int64 { return s.Errors },
		"memory_bytes":        func(s fs.Status) int64 { return s.Memory.Cache },
		"memory_limit_bytes":  func(s fs.Status) int64 { return s.Memory.Limit },
	} {
		set.NewGauge("weightfs_"+name, func() float64 { return float64(value(status)) })
	}
	var b bytes.Buffer
	set.WritePrometheus(&b)
	return b.Bytes()
}
