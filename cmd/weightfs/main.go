// Command weightfs mounts releases of model weights as files, and beside each the views of it that are computed on read.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is the program: it returns the exit code.
func run(argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	u := &ui{in: stdin, out: stdout, err: stderr}
	root := newRootCommand(u)
	root.SetArgs(argv[1:])
	return u.end(root.ExecuteContext(ctx))
}
