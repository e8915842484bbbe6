package release

// Alike says which files of a listing have names that some file systems do not tell apart, a few of them in words.
func Alike(l *Listing) []string {
	var n notes
	for _, p := range l.Alike() {
		n.add("%s and %s are two files here, but one where case or Unicode form does not count: a copy there has one of them only", p[0], p[1])
	}
	return n.list("names that are alike")
}
