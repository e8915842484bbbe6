package fs

import (
	"context"
	"errors"
	iofs "io/fs"
	"net/http"
	"syscall"

	"weightfs/fs/plan"
	"weightfs/sources"
)

var (
	// errDeadline is the cause of a context that ran out of time.
	errDeadline = errors.New("no answer within the read deadline")
	// errKilled is the cause of a context whose reader has SIGKILL pending.
	errKilled = errors.New("the reader is being killed")
)

// answer is what a kind of failure becomes at the doors.
type answer struct {
	kind   error
	errno  syscall.Errno
	status int // HTTP
}

// answers returns the only table from errors to answers; the first row that matches counts, and what matches none is EIO. ENOENT is for names
// that a complete listing does not have: a listed file that its source no longer has is one that changed. EINTR is for readers that
// will not live to see it.
func answers() []answer {
	return []answer{
		{errKilled, syscall.EINTR, http.StatusServiceUnavailable},
		{iofs.ErrNotExist, syscall.ENOENT, http.StatusNotFound},
		{errNotDir, syscall.ENOTDIR, http.StatusNotFound},
		{errIsDir, syscall.EISDIR, http.StatusConflict},
		{sources.ErrNotFound, syscall.ESTALE, http.StatusGone},
		{sources.ErrChanged, syscall.ESTALE, http.StatusGone},
		{sources.ErrDenied, syscall.EACCES, http.StatusForbidden},
		{iofs.ErrPermission, syscall.EACCES, http.StatusForbidden},
		{sources.ErrCorrupt, syscall.EIO, http.StatusBadGateway},
		{plan.ErrBadInput, syscall.EIO, http.StatusBadGateway},
		{sources.ErrTemporary, syscall.EIO, http.StatusGatewayTimeout},
		{sources.ErrOffline, syscall.EIO, http.StatusGatewayTimeout},
		{errDeadline, syscall.EIO, http.StatusGatewayTimeout},
		{context.DeadlineExceeded, syscall.EIO, http.StatusGatewayTimeout},
	}
}

// answerTo finds the row of an error.
func answerTo(err error) answer {
	for _, a := range answers() {
		if errors.Is(err, a.kind) {
			return a
		}
	}
	return answer{err, syscall.EIO, http.StatusInternalServerError}
}

// errno is what a system call gets for an error, 0 for nil.
func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	return answerTo(err).errno
}
