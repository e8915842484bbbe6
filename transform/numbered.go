package transform

import (
	"fmt"
	"strconv"
	"strings"

	"weightfs/fs/plan"
)

// numbered is a directory entry's name: letter and number with at least three digits, more if the largest number has more.
type numbered struct {
	before, after string
	digits        int
}

func newNumbered(before string, largest int, after string) numbered {
	return numbered{before, after, max(3, len(strconv.Itoa(largest)))}
}

func (n numbered) name(v int) string { return fmt.Sprintf("%s%0*d%s", n.before, n.digits, v, n.after) }

// parse is the inverse of name.
func (n numbered) parse(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, n.before)
	text, ok2 := strings.CutSuffix(text, n.after)
	v, err := strconv.Atoi(text)
	return v, ok && ok2 && err == nil && v >= 0 && n.name(v) == name
}

// layerDirs is L<layer>/E<expert><after> for the experts of a class. node gives size and Open of the i-th layer's expert e.
func layerDirs(layers []int, perLayer int, after string, node func(i, e int) plan.Node) plan.Dir {
	layer := newNumbered("L", layers[len(layers)-1], "")
	expert := newNumbered("E", perLayer-1, after)
	inside := func(i int) plan.Dir {
		at := func(e int) plan.Node {
			n := node(i, e)
			n.Name = expert.name(e)
			return n
		}
		return plan.Indexed{N: perLayer, At: at, Find: func(name string) (plan.Node, bool) {
			e, ok := expert.parse(name)
			if !ok || e >= perLayer {
				return plan.Node{}, false
			}
			return at(e), true
		}}
	}
	at := func(i int) plan.Node { return plan.Folder(layer.name(layers[i]), inside(i)) }
	return plan.Indexed{N: len(layers), At: at, Find: func(name string) (plan.Node, bool) {
		v, ok := layer.parse(name)
		for i := range layers {
			if ok && layers[i] == v {
				return at(i), true
			}
		}
		return plan.Node{}, false
	}}
}
