package transform

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
)

// dumbSplit is split/ of a fused release: every expert a tensor of its own, in the shard of the fused one.
func (x *expertNames) dumbSplit(r *testrel.Release) map[string][]dumbTensor {
	out := map[string][]dumbTensor{}
	for path, ts := range dumbAll(r) {
		for _, d := range ts {
			base, projection, ok := strings.Cut(d.name, ".experts.")
			if !ok || !expertName.MatchString(d.name) {
				out[path] = append(out[path], d)
				continue
			}
			projections := []string{"down"}
			if projection == "gate_up_proj" {
				projections = []string{"gate", "up"}
			}
			for e := range x.experts {
				for _, p := range projections {
					shape, data := x.cut(r.Tensor(d.name), p, e)
					out[path] = append(out[path], dumbTensor{fmt.Sprintf("%s.experts.%d.%s_proj.weight", base, e, p), d.dtype, shape, data})
				}
			}
		}
	}
	return out
}

// dumbFused is fused-bf16/ of a per-expert release: the experts of a layer stacked, in the shard of the first one's gate or down.
func (x *expertNames) dumbFused(r *testrel.Release) map[string][]dumbTensor {
	out := only(dumbBF16(r), func(name string) bool { return !expertName.MatchString(name) })
	add := func(prefix string, layer int) {
		base := strings.TrimSuffix(expand(prefix, layer, 0), "0.")
		stack := map[string]*dumbTensor{
			"gate": {name: base + "gate_up_proj", dtype: "BF16"}, "down": {name: base + "down_proj", dtype: "BF16"},
		}
		for e := range x.experts {
			parts := x.bf16Parts(r, prefix, layer, e)
			stack["gate"].data = append(append(stack["gate"].data, parts[0].data...), parts[1].data...)
			stack["gate"].shape = []int64{int64(x.experts), 2 * parts[0].shape[0], parts[0].shape[1]}
			stack["down"].data = append(stack["down"].data, parts[2].data...)
			stack["down"].shape = append([]int64{int64(x.experts)}, parts[2].shape...)
		}
		for p, d := range stack {
			name := expand(prefix+x.projections[p], layer, 0)
			t := r.Tensor(name)
			if t == nil {
				t = r.Tensor(name + "_packed")
			}
			out[t.Path] = append(out[t.Path], *d)
		}
	}
	for _, l := range x.layers {
		add(x.prefix, l)
	}
	if x.mtp != "" {
		add(x.mtp, 0)
	}
	return out
}

func TestRegrouped(t *testing.T) {
	for _, x := range smallExperts {
		t.Run(x.release, func(t *testing.T) {
			r := byName(t, x.release)
			dir, m := open(r)
			config := dumbConfig(m.file("config.json").bytes())
			check := func(view string, shows map[string][]dumbTensor) {
				want := dumbDir(shows)
				want["config.json"] = m.file("config.json").bytes()
				if strings.HasSuffix(view, "-bf16") {
					want["config.json"] = config
				}
				checkDir(t, dir, m, view, want)
			}
			missing := "split"
			if x.fused {
				missing = "fused"
				check("split", x.dumbSplit(r))
				check("split-bf16", x.dumbSplit(r))
			} else {
				check("fused-bf16", x.dumbFused(r))
			}
			absent := []string{missing, missing + "-bf16"}
			if x.release == "mixtral-single" {
				check("fused", x.dumbFused(r))
			} else if !x.fused {
				absent = append(absent, "fused")
			}
			for _, view := range absent {
				var a *Absent
				if _, err := plan.Walk(t.Context(), dir, view); !errors.As(err, &a) {
					t.Errorf("%s: %v", view, err)
				} else {
					t.Log(a)
				}
			}
		})
	}
}

// TestExpertFiles: one file per expert, with the tensors of the release under their names.
func TestExpertFiles(t *testing.T) {
	for _, x := range smallExperts {
		r := byName(t, x.release)
		dir, m := open(r)
		class := func(view, prefix string, layers []int) {
			for _, l := range layers {
				for e := range x.experts {
					var ts []dumbTensor
					for _, p := range x.nativeParts(r, prefix, l, e) {
						name := expand(p.tensor, l, e)
						if x.fused {
							name = regexp.MustCompile(`([^.]*)$`).ReplaceAllString(name, fmt.Sprintf("%d.$1", e))
						}
						ts = append(ts, dumbTensor{name, p.dtype, p.shape, p.data})
					}
					path := fmt.Sprintf("%s/L%03d/E%03d.safetensors", view, l, e)
					if got, want := at(t, dir, m, path), dumbShard(ts); string(got) != string(want) {
						t.Fatalf("%s: %s: %d bytes, want %d; first difference at %d", r.Name, path, len(got), len(want), firstDiff(got, want))
					}
				}
			}
		}
		class("experts/files", x.prefix, x.layers)
		if x.mtp != "" {
			class("experts/files/mtp", x.mtp, []int{0})
		}
	}
}
