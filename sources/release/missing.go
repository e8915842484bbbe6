package release

import (
	"context"
	"slices"
	"strings"

	"weightfs/sources"
)

// Missing is the shards that a release's index names and its listing does not have, sorted. A release without an index, or with one that cannot be
// read as such, names none.
func Missing(ctx context.Context, l *sources.Listing, reader Reader) (names []string, err error) {
	index := chooseIndex(l)
	if index == "" {
		return nil, nil
	}
	text, err := reader.ReadFile(ctx, index, maxIndex)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	_, bad := scanIndex(text, func(_, shard []byte) error {
		if named[string(shard)] {
			return nil
		}
		s := string(shard)
		if named[s] = true; strings.HasSuffix(s, shardExt) && l.Find(s) < 0 {
			names = append(names, s)
		}
		return nil
	})
	if bad != nil {
		return nil, nil
	}
	slices.Sort(names)
	return names, nil
}
