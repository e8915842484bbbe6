// Command weightfs mounts releases of model weights as files, and beside each the views of it that are computed on read.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends what does not heed the first
	code := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: it returns the exit code. Called as mount.weightfs (by mount(8), from fstab) it takes that form.
func run(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	u := &ui{in: stdin, out: stdout, err: stderr}
	if strings.HasPrefix(filepath.Base(argv[0]), "mount.") {
		return fstabMount(ctx, u, argv[1:])
	}
	root := newRootCommand(u)
	root.SetArgs(argv[1:])
	return u.end(root.ExecuteContext(ctx))
}
