package transform

import (
	"fmt"
	"slices"
	"strings"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// bare is the root of a release that cannot be opened as one set of weights: the release itself, and the verdict in place of the views.
func (t *tree) bare(err error) *root {
	r := &root{absent: branches{}}
	for _, v := range t.views {
		top, _, _ := strings.Cut(v.Name, "/")
		r.absent[top] = &Absent{View: top, Reason: err.Error(), Err: err}
	}
	readme := plan.File("README.md", literal("README.md", []byte(bareReadme(t.listing, t.hidden, err))))
	r.nodes = plan.NewStatic(append(slices.Clone(t.early), readme)...)
	return r
}

// bareReadme is README.md of such a root.
func bareReadme(l *release.Listing, hidden int, err error) string {
	var b strings.Builder
	title(&b, l)
	b.WriteString(" The repository stands in `release/`, byte for byte. It has no views:\n\n")
	fmt.Fprintf(&b, "* %s\n\n", printable(err.Error()))
	b.WriteString("A mount shows one revision for as long as it lives, so they will not appear in this one. Mount a revision that is whole ")
	b.WriteString("(`hf://org/name@revision`); or, if these files are a copy, copy again what is damaged or missing, and mount it anew.\n")
	section(&b, "Remarks", oddFiles(l, hidden))
	return b.String()
}

// title is the heading of a root's README and the beginning of its first paragraph.
func title(b *strings.Builder, l *release.Listing) {
	fmt.Fprintf(b, "# %s\n\n", printable(l.Name))
	if l.Revision != "" {
		fmt.Fprintf(b, "Pinned to commit %s. ", printable(l.Revision))
	}
	b.WriteString("Read-only.")
}

// oddFiles are the files that release/ does not show, and those whose names are alike.
func oddFiles(l *release.Listing, hidden int) []string {
	var out []string
	for _, f := range l.Hidden {
		out = append(out, fmt.Sprintf("`%s` is hidden: %s.", printable(f.Path), printable(f.Reason)))
	}
	if hidden > 0 {
		out = append(out, fmt.Sprintf("%d files are hidden because their paths are not clean or stand below another file.", hidden))
	}
	for _, n := range release.Alike(l) {
		out = append(out, printable(n)+".")
	}
	return out
}
