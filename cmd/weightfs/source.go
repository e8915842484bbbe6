package main

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"weightfs/sources"
)

// place is a parsed SOURCE.
type place struct {
	arg string
	// dir is the directory of this release in a mount of several, slash-separated: org/name@revision, or the last element of a path
	// or URL.
	dir   string
	local bool // its files are this machine's
	open  func(*sources.Options) (sources.Source, error)
}

// scheme is one kind of SOURCE.
type scheme struct {
	prefix string
	parse  func(arg string) (place, error)
}

// schemes is every kind of SOURCE; the first whose prefix fits is taken. The last one, a path, fits always.
func schemes() []scheme {
	return []scheme{
		{"hf://", parseHub},
		{"https://", parseHTTP},
		{"http://", parseHTTP},
		{"file://", parseFileURL},
		{"", parsePath},
	}
}

func parseSource(arg string) (place, error) {
	all := schemes()
	i := slices.IndexFunc(all, func(s scheme) bool { return strings.HasPrefix(arg, s.prefix) })
	p, err := all[i].parse(arg)
	p.arg = arg
	return p, err
}

func badSource(arg, why string) error {
	return usageError{fmt.Sprintf("%q is no SOURCE: %s", arg, why),
		"a SOURCE is hf://[org/]name[@revision], https://host/dir/ (or one .safetensors file), a directory or file:///dir"}
}

// repository is the Hub's rule for names, and what may stand behind the @.
var repository = regexp.MustCompile(`^(?:[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$`)

func parseHub(arg string) (place, error) {
	rest := strings.TrimSuffix(strings.TrimPrefix(arg, "hf://"), "/")
	repo, revision, pinned := strings.Cut(rest, "@")
	switch {
	case !repository.MatchString(repo), len(repo) > 96, strings.Contains(repo, "--"), strings.Contains(repo, ".."):
		return place{}, badSource(arg, "the Hub has no repository of such a name")
	case pinned && revision == "":
		return place{}, badSource(arg, "nothing after the @")
	}
	dir := repo
	if pinned {
		dir += "@" + url.PathEscape(revision)
	}
	return place{dir: dir, open: func(o *sources.Options) (sources.Source, error) { return sources.Hub(repo, revision, o) }}, nil
}

func parseHTTP(arg string) (place, error) {
	u, err := url.Parse(arg)
	if err != nil || u.Host == "" {
		return place{}, badSource(arg, "not a URL")
	}
	if repo, page := hubPage(u); page {
		return place{}, usageError{fmt.Sprintf("%q is a page of the Hugging Face Hub", arg), "for the repository write hf://" + repo + ", with @revision if it is not main"}
	}
	dir := path.Base(path.Clean("/" + u.Path))
	if dir == "/" {
		dir = u.Host
	}
	return place{dir: dir, open: func(o *sources.Options) (sources.Source, error) { return sources.HTTP(arg, o) }}, nil
}

// hubPage is the repository of an address that a browser shows for one of models on the Hub: /org/name, /org/name/tree/main and such. Below
// resolve/ are files, no pages.
func hubPage(u *url.URL) (repo string, ok bool) {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if u.Host != "huggingface.co" && u.Host != "hf.co" || len(parts) < 2 || slices.Contains([]string{"api", "datasets", "spaces"}, parts[0]) {
		return "", false
	}
	return parts[0] + "/" + parts[1], len(parts) == 2 || parts[2] != "resolve"
}

func parseFileURL(arg string) (place, error) {
	u, err := url.Parse(arg)
	if err != nil || u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") {
		return place{}, badSource(arg, "a file URL has three slashes and an absolute path")
	}
	return parsePath(u.Path)
}

func parsePath(arg string) (place, error) {
	if i := strings.Index(arg, "://"); i > 0 {
		return place{}, badSource(arg, "unknown scheme "+arg[:i])
	}
	abs, err := filepath.Abs(arg)
	if err != nil || arg == "" {
		return place{}, badSource(arg, "not a path")
	}
	return place{dir: filepath.Base(abs), local: true, open: func(*sources.Options) (sources.Source, error) {
		src, err := sources.Dir(abs)
		if _, stat := os.Stat(abs); err != nil && os.IsNotExist(stat) && repository.MatchString(arg) {
			err = hinted{err, "for the repository on the Hugging Face Hub write hf://" + arg}
		}
		return src, err
	}}, nil
}

// parseSources parses several SOURCEs that are mounted side by side.
func parseSources(args []string) ([]place, error) {
	places := make([]place, len(args))
	for i, arg := range args {
		p, err := parseSource(arg)
		if err != nil {
			return nil, err
		}
		for _, q := range places[:i] {
			if p.dir == q.dir || strings.HasPrefix(p.dir, q.dir+"/") || strings.HasPrefix(q.dir, p.dir+"/") {
				return nil, usageError{fmt.Sprintf("%s and %s would both be the directory %s", q.arg, p.arg, min(p.dir, q.dir)), "mount them in two directories"}
			}
		}
		places[i] = p
	}
	return places, nil
}
