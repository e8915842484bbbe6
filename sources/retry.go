package sources

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	firstPause = 250 * time.Millisecond
	mostPause  = 8 * time.Second
	// apiTries is how often List asks the server before it gives up: about 8 s of trying.
	apiTries = 6
	// brokenTries is how many replies in a row may break the rules, of a server that never kept them.
	brokenTries = 3
)

// Retry calls op until it succeeds, fails for good, or ctx ends, with a pause between the calls that grows from a quarter of a second
// to eight, give or take a half. Failures that are ErrTemporary are worth another call; of replies that break the range rule
// ([ErrBroken]), from a server that never kept it, the third in a row is the last. A pause that a host asked for is waited out before the
// next request is sent, by everyone. The error is that of the last call; it is also the context's if that ended the trying.
func Retry(ctx context.Context, op func(context.Context) error) error {
	return retry(ctx, 0, func(error, time.Duration) {}, op)
}

// retry is Retry with a number of tries, 0 for no limit, and a call before each pause.
func retry(ctx context.Context, tries int, again func(error, time.Duration), op func(context.Context) error) error {
	schedule := backoff.ExponentialBackOff{InitialInterval: firstPause, MaxInterval: mostPause, Multiplier: 2, RandomizationFactor: 0.5}
	for try, refused := 1, 0; ; try++ {
		err := op(ctx)
		if err == nil || !errors.Is(err, ErrTemporary) {
			return err
		}
		if refused++; !refusedForGood(err) {
			refused = 0
		}
		if refused == brokenTries || try == tries {
			return fmt.Errorf("%w (tried %d times)", err, try)
		}
		pause := schedule.NextBackOff()
		again(err, pause)
		if cause := sleep(ctx, pause); cause != nil {
			return fmt.Errorf("%w (tried %d times: %w)", err, try, cause)
		}
	}
}

// refusedForGood reports whether err is a refused reply of a server that never gave a right one.
func refusedForGood(err error) bool {
	var b *brokenError
	return errors.As(err, &b) && !b.passing
}

// sleep waits for d, or for the end of ctx and returns why that ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
