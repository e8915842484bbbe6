package sources

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Alike are pairs of files whose paths differ only in case, or in how Unicode writes the same letters (NFC or NFD), as printable text. They
// are two files here; where the release is copied to a file system that does not tell them apart, one takes the other's place.
func (l *Listing) Alike() (pairs [][2]string) {
	first := make(map[string]string, len(l.Files))
	for _, f := range l.Files {
		key := strings.ToLower(norm.NFC.String(f.Path))
		if other, ok := first[key]; ok {
			pairs = append(pairs, [2]string{printable(other), printable(f.Path)})
			continue
		}
		first[key] = f.Path
	}
	return pairs
}
