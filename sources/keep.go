package sources

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
)

// Keeper keeps what one run learned for the next. The disk cache is one.
type Keeper interface {
	// LoadDocument is the document of that key as it was stored, nil if it is not there, damaged, or longer than limit. The document of a key
	// never changes.
	LoadDocument(key ID, limit int64) []byte
	StoreDocument(key ID, doc []byte)
	// LoadNote is the note that was stored last under a key, as LoadDocument. A note may change, and is not dropped to make room.
	LoadNote(key ID, limit int64) []byte
	StoreNote(key ID, note []byte)
}

const maxKept = 64 << 20

// keptListing is the tree of a commit as it is kept: what the Hub said, before anything is hidden.
type keptListing struct {
	Commit string
	Files  []Entry
	Dirs   []string
	Hidden []Hidden
}

// listingKey names the listing of a commit, and the version of keptListing.
func (s *hub) listingKey(commit string) ID {
	return sha256.Sum256([]byte(strings.Join([]string{"listing 1", origin(s.endpoint), s.endpoint.Path, s.repo, commit}, "\n")))
}

// keptTree is the tree of a commit from an earlier run, nil if there is none.
func (s *hub) keptTree(commit string) *tree {
	if s.o.Keep == nil {
		return nil
	}
	var k keptListing
	doc := s.o.Keep.LoadDocument(s.listingKey(commit), maxKept)
	if doc == nil || json.Unmarshal(doc, &k) != nil || k.Commit != commit || len(k.Files)+len(k.Dirs)+len(k.Hidden) > maxEntries {
		return nil
	}
	return &tree{entries: k.Files, dirs: k.Dirs, hidden: k.Hidden}
}

func (s *hub) keepTree(commit string, t *tree) {
	if s.o.Keep == nil {
		return
	}
	if doc, err := json.Marshal(keptListing{commit, t.entries, t.dirs, t.hidden}); err == nil && len(doc) <= maxKept {
		s.o.Keep.StoreDocument(s.listingKey(commit), doc)
	}
}
