package release

type nameIndex struct{}
