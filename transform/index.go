package transform

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weightfs/fs/plan"
	"weightfs/sources/safetensors"
)

// indexSize counts what it takes to know the length of a model.safetensors.index.json without its text.
type indexSize struct{ rows, bytes, total int64 }

// nameBytes is the length of the tensors' names as JSON.
func nameBytes(ts []tensor) int64 {
	var n int64
	for i := range ts {
		n += int64(quotedLen(ts[i].Name))
	}
	return n
}

// add counts a file of that many tensors, whose names as JSON have that many bytes.
func (x *indexSize) add(file string, tensors int, names, data int64) {
	x.rows += int64(tensors)
	x.bytes += names + int64(tensors)*int64(len(",\n    ")+len(`: `)+len(quote(file)))
	x.total += data
}

const (
	indexName = "model.safetensors.index.json"
	indexHead = "{\n  \"metadata\": {\n    \"total_size\": "
	indexMid  = "\n  },\n  \"weight_map\": {"
	indexEnd  = "\n  "
	indexTail = "}\n}\n"
)

func (x *indexSize) len() int64 {
	n := int64(len(indexHead)+len(strconv.FormatInt(x.total, 10))+len(indexMid)+len(indexTail)) + x.bytes
	if x.rows > 0 {
		n += int64(len(indexEnd)) - 1 // no comma before the first row
	}
	return n
}

// entry is the index as a file. each calls add with the tensors of every file that was counted.
func (x indexSize) entry(each func(add func(file string, ts []tensor)) error) entry {
	return entry{indexName, plan.Node{Size: x.len(), Open: func(context.Context) (*plan.Plan, error) {
		var rows []indexRow
		err := each(func(file string, ts []tensor) {
			for i := range ts {
				rows = append(rows, indexRow{ts[i].Name, file})
			}
		})
		if err != nil {
			return nil, err
		}
		text, err := x.text(rows)
		return literal("index", text), err
	}}}
}

type indexRow struct{ name, file string }

// text is the index in the form that huggingface_hub writes: two spaces of indent, names sorted. A name that occurs twice is an
// error.
func (x *indexSize) text(rows []indexRow) ([]byte, error) {
	slices.SortFunc(rows, func(a, b indexRow) int { return strings.Compare(a.name, b.name) })
	b := make([]byte, 0, x.len())
	b = append(b, indexHead...)
	b = strconv.AppendInt(b, x.total, 10)
	b = append(b, indexMid...)
	for i, r := range rows {
		if i > 0 {
			if rows[i-1].name == r.name {
				return nil, fmt.Errorf("tensor %s is in %s and in %s", printable(r.name), rows[i-1].file, r.file)
			}
			b = append(b, ',')
		}
		b = append(appendQuoted(append(b, "\n    "...), r.name), ": "...)
		b = appendQuoted(b, r.file)
	}
	if len(rows) > 0 {
		b = append(b, indexEnd...)
	}
	return append(b, indexTail...), nil
}

// plain says whether s is a JSON string as it is, between quotes. encoding/json escapes three characters more than it has to.
func plain(s string) bool {
	return safetensors.PlainLen([]byte(s)) == len(s) && !strings.ContainsAny(s, "<>&")
}

// quotedLen is the length of what quote makes of s.
func quotedLen(s string) int {
	if plain(s) {
		return len(`"`) + len(s) + len(`"`)
	}
	return len(quote(s))
}

// appendQuoted appends what quote makes of s.
func appendQuoted(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	return append(b, quote(s)...)
}

// quote is s as a JSON string.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("transform: a string has no JSON form: " + err.Error())
	}
	return b
}
