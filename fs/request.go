package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	// watchAfter is how long a request may take before anybody looks whether its reader is being killed, and watchEvery how often.
	watchAfter = 200 * time.Millisecond
	watchEvery = 250 * time.Millisecond
	// maxRequestTimeout is after how many seconds the kernel ends a connection one of whose requests is not answered; 0 is never.
	maxRequestTimeout = "/proc/sys/fs/fuse/max_request_timeout"
)

// request makes the context of a kernel request. It ends at the read deadline, with the mount, or when the caller has SIGKILL pending. Interrupts do not end
// it: the kernel sends one for every signal, and a page fault that is answered EINTR is tried again for ever.
func (d *door) request(ctx context.Context) (context.Context, context.CancelFunc) {
	killable, cancel := context.WithCancelCause(d.life)
	out, stop := context.WithTimeoutCause(killable, d.fs.deadline, errDeadline)
	end := func() {
		stop()
		cancel(nil)
	}
	caller, ok := ctx.(*fuse.Context)
	if !ok {
		return out, end
	}
	watch := time.AfterFunc(watchAfter, func() { watchKill(out, caller, cancel) })
	return out, func() {
		watch.Stop()
		end()
	}
}

// watchKill waits for an interrupt of the request, and from then on looks whether the caller is being killed.
func watchKill(ctx context.Context, caller *fuse.Context, cancel context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
		return
	case <-caller.Done():
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for !killPending(caller.Pid) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	cancel(errKilled)
}

// killPending says whether a thread is gone or about to go. Callers in another pid namespace have number 0; nothing is known of them.
func killPending(tid uint32) bool {
	if tid == 0 {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	return errors.Is(err, os.ErrNotExist) || err == nil && hasKill(status)
}

// hasKill looks for signal 9 in the SigPnd and ShdPnd lines of a /proc/<tid>/status file.
func hasKill(status []byte) bool {
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		if mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil && mask&(1<<8) != 0 {
			return true
		}
	}
	return false
}

// clampDeadline keeps a deadline a tenth under the kernel's limit for requests: beyond that limit the kernel ends the whole mount.
func clampDeadline(d time.Duration, limitFile string) time.Duration {
	text, err := os.ReadFile(limitFile)
	if err != nil {
		return d
	}
	seconds, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || seconds <= 0 {
		return d
	}
	return min(d, time.Duration(seconds)*time.Second*9/10)
}
