package transform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"weightfs/fs/plan"
)

// readmeText is README.md of a mount: what is here, what each view costs, which are absent and why.
func readmeText(in *input, views []built, hidden int) string {
	var b strings.Builder
	title(&b, in.Listing)
	shards := english.Plural(len(in.Shards), "shard", "")
	fmt.Fprintf(&b, " %s tensors in %s, %s of weights.\n\n", humanize.Comma(int64(in.Len())), shards, size(in.Bytes()))
	b.WriteString("Nothing below is stored: `release/` is fetched, everything else computed, when it is read. \"Reads\" is what the release must deliver when a whole view is read once.\n\n")
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

// readmeFile is README.md of a directory that is no model directory.
func readmeFile(title, text string) plan.Node {
	return plan.File("README.md", literal("README.md", []byte("# "+title+"\n\n"+text+"\n")))
}

// viewLines says what views are, and which are absent.
func viewLines(views []built) string {
	var b strings.Builder
	for _, v := range views {
		if v.err == nil {
			fmt.Fprintf(&b, "* `%s/`: %s\n", v.Name, v.About)
		}
	}
	section(&b, "Absent", absences(views))
	return strings.TrimSuffix(b.String(), "\n")
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
	out = append(out, oddFiles(in.Listing, hidden)...)
	if in.unsafe > 0 {
		out = append(out, fmt.Sprintf("%d tensors are not in tensors/ because their names cannot stand in a path, `%s` for one.", in.unsafe, printable(in.unsafeFirst)))
	}
	for _, n := range slices.Concat(in.Notes, in.oddities()) {
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
