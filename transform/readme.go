package transform

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
)

// readmeText is README.md of a mount: what is here, what each view costs, which are absent and why.
func readmeText(in *input, views []built, hidden int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", printable(in.Listing.Name))
	if in.Listing.Revision != "" {
		fmt.Fprintf(&b, "Pinned to commit %s. ", printable(in.Listing.Revision))
	}
	fmt.Fprintf(&b, "Read-only. %s tensors in %d shards, %s of weights.\n\n", humanize.Comma(int64(in.Len())), len(in.Shards), size(in.Bytes()))
	b.WriteString("Every file below is computed when it is read. \"Reads\" is what the release must deliver when a whole view is read once.\n\n")
	b.WriteString("| path | what it is | weights shown | reads |\n|---|---|---|---|\n")
	var files int64
	for _, f := range in.Listing.Files {
		files += f.Size
	}
	fmt.Fprintf(&b, "| `release/` | The repository, byte for byte. | %s | %s |\n", size(files), size(files))
	for _, v := range views {
		if v.err == nil {
			fmt.Fprintf(&b, "| `%s/` | %s | %s | %s |\n", v.Name, v.About, size(v.cost.shown), size(v.cost.source))
		}
	}
	if in.Experts != nil {
		b.WriteString("\nExperts also open by name in blocks that begin on other boundaries: `experts/<encoding>-16k`, `-64k`, `-2m`.\n")
	}
	section(&b, "Absent views", absences(views))
	section(&b, "Remarks", remarks(in, hidden))
	return b.String()
}

func section(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "* %s\n", l)
	}
}

// absences says why views are not here; those with one reason share a line.
func absences(views []built) []string {
	var out []string
	at := map[string]int{}
	for _, v := range views {
		if v.err == nil {
			continue
		}
		reason := strings.TrimPrefix(v.err.Error(), v.Name+" is absent: ")
		if k, ok := at[reason]; ok {
			out[k] = fmt.Sprintf("`%s/`, %s", v.Name, out[k])
			continue
		}
		at[reason] = len(out)
		out = append(out, fmt.Sprintf("`%s/`: %s", v.Name, reason))
	}
	return out
}

// remarks are oddities of the release.
func remarks(in *input, hidden int) []string {
	var out []string
	if in.Experts != nil && in.NoMTP != "" && in.MTP == nil {
		out = append(out, "Multi-token prediction: "+printable(in.NoMTP)+".")
	}
	for _, f := range in.LeftOut {
		out = append(out, fmt.Sprintf("`%s` is in release/ only: %s.", printable(f.Path), printable(f.Reason)))
	}
	for _, f := range in.Listing.Hidden {
		out = append(out, fmt.Sprintf("`%s` is hidden: %s.", printable(f.Path), printable(f.Reason)))
	}
	if hidden > 0 {
		out = append(out, fmt.Sprintf("%d files are hidden because their paths are not clean or stand below another file.", hidden))
	}
	if in.unsafe > 0 {
		out = append(out, fmt.Sprintf("%d tensors are not in tensors/ because their names cannot stand in a path, `%s` for one.", in.unsafe, printable(in.unsafeFirst)))
	}
	for _, n := range in.Notes {
		out = append(out, printable(n))
	}
	return out
}

func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	return humanize.IBytes(uint64(n))
}
