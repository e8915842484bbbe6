package sources

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// knownCommit is a commit that a revision was at once.
type knownCommit struct {
	Commit string
	Time   time.Time // of the commit; zero: not known
	Gated  bool      // as in Listing; true if it is not known
	Seen   time.Time // when the revision was found to be at it, by this machine's clock
}

const maxNote = 4 << 10

// commitKey names the note of the commit that a revision is at, and the version of knownCommit.
func (s *hub) commitKey(revision string) ID {
	return sha256.Sum256([]byte(strings.Join([]string{"commit 1", origin(s.endpoint), s.endpoint.Path, s.repo, revision}, "\n")))
}

// keepCommit notes what the revision is at, also for those who name the commit itself.
func (s *hub) keepCommit(k knownCommit) {
	if s.o.Keep == nil {
		return
	}
	note, err := json.Marshal(k)
	if err != nil {
		return
	}
	s.o.Keep.StoreNote(s.commitKey(s.revision), note)
	if s.revision != k.Commit {
		s.o.Keep.StoreNote(s.commitKey(k.Commit), note)
	}
}

// keptCommit is what was noted of a revision.
func (s *hub) keptCommit(revision string) (k knownCommit, ok bool) {
	if s.o.Keep == nil {
		return k, false
	}
	note := s.o.Keep.LoadNote(s.commitKey(revision), maxNote)
	return k, note != nil && json.Unmarshal(note, &k) == nil && k.Commit != "" && hexOf(k.Commit, 20) == k.Commit
}

// knownCommits is the commits that the revision was at as far as this machine knows: as we saw it, as huggingface_hub did, or because it is
// one. The newest finding is first.
func (s *hub) knownCommits(cache hubCache) (all []knownCommit) {
	if k, ok := s.keptCommit(s.revision); ok {
		all = append(all, k)
	}
	ref, seen := cache.ref(s.revision)
	for _, other := range []knownCommit{{Commit: ref, Gated: true, Seen: seen}, {Commit: hexOf(s.revision, 20), Gated: true}} {
		if other.Commit == "" {
			continue
		}
		if k, ok := s.keptCommit(other.Commit); ok {
			other.Time, other.Gated = k.Time, k.Gated
		}
		all = append(all, other)
	}
	slices.SortStableFunc(all, func(a, b knownCommit) int { return b.Seen.Compare(a.Seen) })
	return all
}

// treeOnDisk is the files of a commit as an earlier run or huggingface_hub kept them, nil if neither did.
func (s *hub) treeOnDisk(commit string) *tree {
	if t := s.keptTree(commit); t != nil {
		return t
	}
	cache := openHubCache(s.o.HubCache, s.repo)
	defer cache.close()
	t := cache.tree(commit)
	if t != nil {
		s.keepTree(commit, t)
	}
	return t
}

// listingOnDisk is the listing of the commit that the revision was last known to be at, of those whose files are known; or, if that is none, of
// what huggingface_hub has downloaded of one.
func (s *hub) listingOnDisk() (*Listing, error) {
	cache := openHubCache(s.o.HubCache, s.repo)
	defer cache.close()
	known := s.knownCommits(cache)
	for _, files := range []func(commit string) *tree{s.treeOnDisk, cache.snapshot} {
		for _, k := range known {
			if t := files(k.Commit); t != nil {
				return s.listing(k, t), nil
			}
		}
	}
	err := fmt.Errorf("the list of files at %s is %w", printable(s.revision), ErrOffline)
	if others := cache.commits(); len(others) > 0 {
		err = fmt.Errorf("%w; files of these commits are on disk: %s", err, strings.Join(others, ", "))
	}
	return nil, err
}

// keptFile is a file that a server was found to have, as it is kept. Its address follows from the source's, which may hold secrets.
type keptFile struct {
	Path                   string
	Size                   int64
	ETag, Modified, Strong string // as in validator and probe
	Hidden                 string // why it is refused, "" if it is not
}

// filesKey names the note of what is at a URL, and the version of keptFile.
func (s *httpSource) filesKey() ID {
	return sha256.Sum256([]byte("files 1\n" + s.base.String()))
}

// keepFiles notes what was found at the server, without what is not there.
func (s *httpSource) keepFiles(all []found) {
	if s.o.Keep == nil {
		return
	}
	var files []keptFile
	for _, f := range all {
		if f.hidden != "" || f.status < 400 {
			files = append(files, keptFile{f.path, f.size, f.pin.etag, f.pin.modified, f.strong, f.hidden})
		}
	}
	if note, err := json.Marshal(files); err == nil && len(note) <= maxKept {
		s.o.Keep.StoreNote(s.filesKey(), note)
	}
}

// keptFiles is what was found at the server the last time.
func (s *httpSource) keptFiles() (all []found, err error) {
	var files []keptFile
	if s.o.Keep != nil {
		if note := s.o.Keep.LoadNote(s.filesKey(), maxKept); note == nil || json.Unmarshal(note, &files) != nil {
			files = nil
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("the list of files there is %w", ErrOffline)
	}
	for _, f := range files {
		p := probe{status: http.StatusOK, size: f.Size, pin: validator{f.ETag, f.Modified}, strong: f.Strong}
		all = append(all, found{path: f.Path, url: s.fileURL(f.Path), probe: p, hidden: f.Hidden})
	}
	return all, nil
}
