package sources

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// token is the Hub's access token and the file it came from, if any: a token that is rotated there is taken up.
type token struct {
	file string // "" if it came from the environment

	mu    sync.Mutex // guards value
	value string
}

// findToken looks where huggingface_hub does: the file of the options, HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH,
// $HF_HOME/token. HF_HUB_DISABLE_IMPLICIT_TOKEN leaves only the first. No token is no error, but a named file must be there.
func findToken(o *Options) (*token, error) {
	if o.TokenFile != "" {
		return tokenIn(o, o.TokenFile)
	}
	if truth(o.getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return &token{}, nil
	}
	for _, key := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if v := strings.TrimSpace(o.getenv(key)); v != "" {
			return &token{value: v}, checkToken(v, "$"+key)
		}
	}
	t, err := tokenIn(o, tokenPath(o.getenv))
	if errors.Is(err, os.ErrNotExist) {
		return &token{}, nil
	}
	return t, err
}

// truth is how huggingface_hub reads a flag of the environment.
func truth(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// tokenPath is the file that huggingface_hub keeps the token in, "" if there is no place for one.
func tokenPath(getenv func(string) string) string {
	if p := getenv("HF_TOKEN_PATH"); p != "" {
		return atHome(p, getenv)
	}
	if home := hfHome(getenv); home != "" {
		return filepath.Join(home, "token")
	}
	return ""
}

// hfHome is $HF_HOME, else huggingface below the user's cache directory, "" for a user who has none.
func hfHome(getenv func(string) string) string {
	if p := getenv("HF_HOME"); p != "" {
		return atHome(p, getenv)
	}
	if cache := getenv("XDG_CACHE_HOME"); cache != "" {
		return filepath.Join(cache, "huggingface")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".cache", "huggingface")
	}
	return ""
}

// atHome is a path with the user's home directory for a ~ before its first slash, which no shell has replaced in a file of settings.
func atHome(p string, getenv func(string) string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return filepath.Join(getenv("HOME"), rest)
	}
	return p
}

// offlineEnv is whether the environment wants no request sent to the Hub, by the rule of huggingface_hub.
func offlineEnv(getenv func(string) string) bool {
	return truth(cmp.Or(getenv("HF_HUB_OFFLINE"), getenv("TRANSFORMERS_OFFLINE")))
}

// tokenIn reads a token file and warns if others can read it, too.
func tokenIn(o *Options, path string) (*token, error) {
	v, err := readToken(path)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(path); err == nil && st.Mode().Perm()&0o077 != 0 {
		o.log().Warn("the token file can be read by other users: chmod 600", "file", path, "mode", st.Mode().Perm())
	}
	return &token{file: path, value: v}, nil
}

func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxErrorBody))
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	v := strings.TrimSpace(string(b))
	return v, checkToken(v, path)
}

// checkToken refuses what cannot stand in a header, without repeating it.
func checkToken(v, from string) error {
	if strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the token in %s is not one word of plain characters", from)
	}
	return nil
}

// bearer is the Authorization header, "" without a token.
func (t *token) bearer() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.value == "" {
		return ""
	}
	return "Bearer " + t.value
}

// reread takes up the token that is in the file now and reports whether it is another one than was sent.
func (t *token) reread(sent string) bool {
	if t.file == "" {
		return false
	}
	if v, err := readToken(t.file); err == nil {
		t.mu.Lock()
		t.value = v
		t.mu.Unlock()
	}
	return t.bearer() != sent
}

// loopback reports whether a URL leads to this machine.
func loopback(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && a.IsLoopback() || strings.EqualFold(u.Hostname(), "localhost")
}
