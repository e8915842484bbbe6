package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// proxied are the addresses that a proxy stands between: clients reach the hub and its CDN at the fronts.
type proxied struct{ hub, cdn, hubFront, cdnFront string }

// proxyKind is a program that stands between a daemon and the hub, as companies and clouds have them.
type proxyKind struct {
	name, program string
	config        func(p proxied, dir string) string // of a file in dir
	args          func(p proxied, dir, config string) []string
}

// proxies are plain ones (nginx, haproxy) and caches (varnish, which fetches whole objects for ranges of them, and squid).
var proxies = []proxyKind{
	{"nginx", "nginx", nginxConfig, func(_ proxied, dir, config string) []string {
		return []string{"-p", dir, "-c", config, "-e", filepath.Join(dir, "error.log")}
	}},
	{"haproxy", "haproxy", haproxyConfig, func(_ proxied, _, config string) []string { return []string{"-db", "-q", "-f", config} }},
	{"varnish", "varnishd", varnishConfig, func(p proxied, dir, config string) []string {
		return []string{"-F", "-j", "none", "-n", filepath.Join(dir, "state"), "-f", config, "-s", "malloc,64m", "-a", "hub=" + p.hubFront, "-a", "cdn=" + p.cdnFront}
	}},
	{"squid", "squid", squidConfig, func(_ proxied, _, config string) []string { return []string{"-N", "-f", config} }},
}

func nginxConfig(p proxied, dir string) string {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n"
	}
	server := `server { listen %s; location / { proxy_pass http://%s; proxy_set_header Host $http_host; proxy_http_version 1.1; proxy_set_header Connection ""; } }` + "\n"
	return user + fmt.Sprintf("daemon off; worker_processes 2; pid %[1]s/pid;\nevents {}\nhttp {\naccess_log off;\n", dir) +
		fmt.Sprintf("client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;\n", dir) +
		fmt.Sprintf(server, p.hubFront, p.hub) + fmt.Sprintf(server, p.cdnFront, p.cdn) + "}\n"
}

func haproxyConfig(p proxied, _ string) string {
	listen := "listen %s\n  bind %s\n  server s %s\n"
	return "defaults\n  mode http\n  timeout connect 5s\n  timeout client 100s\n  timeout server 100s\n" +
		fmt.Sprintf(listen, "hub", p.hubFront, p.hub) + fmt.Sprintf(listen, "cdn", p.cdnFront, p.cdn)
}

func varnishConfig(p proxied, _ string) string {
	backend := func(name, addr string) string {
		host, port, _ := net.SplitHostPort(addr)
		return fmt.Sprintf("backend %s { .host = %q; .port = %q; .first_byte_timeout = 100s; .between_bytes_timeout = 100s; }\n", name, host, port)
	}
	return "vcl 4.1;\n" + backend("hub", p.hub) + backend("cdn", p.cdn) + `
sub vcl_recv { if (local.socket == "hub") { set req.backend_hint = hub; } else { set req.backend_hint = cdn; } }
sub vcl_backend_response { if (beresp.status >= 400) { set beresp.ttl = 0s; set beresp.uncacheable = true; } }
sub vcl_backend_error { return (deliver); } # its own page asks for a pause of five seconds
`
}

func squidConfig(p proxied, dir string) string {
	var b strings.Builder
	for _, s := range []struct{ name, front, to string }{{"hub", p.hubFront, p.hub}, {"cdn", p.cdnFront, p.cdn}} {
		host, port, _ := net.SplitHostPort(s.to)
		fmt.Fprintf(&b, "http_port %s accel vhost name=%s\nacl %[2]s myportname %[2]s\n", s.front, s.name)
		fmt.Fprintf(&b, "cache_peer %s parent %s 0 no-query no-digest login=PASSTHRU originserver name=to%s\ncache_peer_access to%[3]s allow %[3]s\ncache_peer_access to%[3]s deny all\n", host, port, s.name)
	}
	fmt.Fprintf(&b, "never_direct allow all\nhttp_access allow all\naccess_log none\ncache_log %[1]s/cache.log\npid_filename %[1]s/pid\ncoredump_dir %[1]s\n", dir)
	b.WriteString("cache_mem 64 MB\nmaximum_object_size_in_memory 8 MB\nvisible_hostname soak\nshutdown_lifetime 0 seconds\nnegative_ttl 0 seconds\nconnect_retries 3\n")
	return b.String()
}

// proxy is one that stands before the hub.
type proxy struct {
	proxied
	cmd   *exec.Cmd
	dir   string
	ended chan error
}

// newProxy chooses the addresses of a proxy and of the CDN behind it.
func newProxy(hub string) (p *proxy, err error) {
	p = &proxy{proxied: proxied{hub: hub}, ended: make(chan error, 1)}
	if _, p.cdn, err = freePorts(); err == nil {
		p.hubFront, p.cdnFront, err = freePorts()
	}
	return p, err
}

// start runs the proxy and waits until it takes connections.
func (p *proxy) start(kind proxyKind) (err error) {
	if p.dir, err = os.MkdirTemp("", "weightfs-proxy-"); err != nil {
		return err
	}
	os.Chmod(p.dir, 0o777) // squid and nginx have users of their own
	config := filepath.Join(p.dir, "config")
	if err := os.WriteFile(config, []byte(kind.config(p.proxied, p.dir)), 0o644); err != nil {
		return err
	}
	p.cmd = exec.Command(kind.program, kind.args(p.proxied, p.dir, config)...)
	said, err := os.Create(filepath.Join(p.dir, "said"))
	if err != nil {
		return err
	}
	defer said.Close()
	p.cmd.Stdout, p.cmd.Stderr = said, said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	go func() { p.ended <- p.cmd.Wait(); close(p.ended) }()
	return eventually(kind.name+" takes connections", func() error {
		select {
		case err := <-p.ended:
			text, _ := os.ReadFile(said.Name())
			return fmt.Errorf("%w: %s: %v: %s", errEnded, kind.name, err, text)
		default:
		}
		return errors.Join(answers(p.hubFront), answers(p.cdnFront))
	})
}

func answers(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

// stop ends the proxy and what it started.
func (p *proxy) stop() {
	defer os.RemoveAll(p.dir)
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
}

// freePorts are two addresses that nobody listens on, on an address of loopback that no connection of others has as its own.
func freePorts() (a, b string, err error) {
	var l [2]net.Listener
	for i := range l {
		if l[i], err = net.Listen("tcp", "127.83.83.85:0"); err != nil {
			return "", "", err
		}
		defer l[i].Close()
	}
	return l[0].Addr().String(), l[1].Addr().String(), nil
}
