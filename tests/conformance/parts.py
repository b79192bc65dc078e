"""Checks of what travels: adapters, and checkpoints that carry their code into a process without the package."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .family import FamilyCase, Head, assert_same, prediction

FRESH_PROCESS = Path(__file__).with_name("fresh_process.py")
CHECKPOINT = "<checkpoint>"  # stands for the folder from which the process without the package loads


class PeftChecks(FamilyCase):
    def peft_batch(self, head: Head) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Inputs with and without labels. PEFT's question-answering wrapper takes `token_type_ids` and drops them."""
        dropped = ("token_type_ids",) if head.task_type == "QUESTION_ANS" else ()
        return tuple(
            {name: value for name, value in batch.items() if name not in dropped}
            for batch in (self.labelled(head), self.inputs(head))
        )

    def adapted(self, head: Head, model: nn.Module | None = None) -> Any:
        """The head with trained-looking LoRA on query and value."""
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(3)
        config = LoraConfig(task_type=head.task_type, r=2, lora_alpha=8, target_modules=list(self.lora_targets))
        return get_peft_model(model or self.model(head), config)

    def attentions(self, config: Any) -> int:
        """Number of modules with each of `lora_targets`."""
        return config.num_hidden_layers

    def train(self, model: nn.Module, batch: dict[str, torch.Tensor], steps: int = 2) -> None:
        optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=0.5)
        for _ in range(steps):
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
        model.eval()

    def test_lora_is_trained_and_survives_a_round_trip(self, peft_head: Head, tmp_path: Path) -> None:
        import peft

        base, (batch, inputs) = self.model(peft_head), self.peft_batch(peft_head)
        base.save_pretrained(tmp_path / "base")
        base = peft_head.cls.from_pretrained(tmp_path / "base")
        with torch.no_grad():
            before = prediction(peft_head, base(**inputs))
        model = self.adapted(peft_head, base)
        self.train(model, batch)
        up = [value for name, value in model.named_parameters() if "lora_B" in name]
        assert len(up) == len(self.lora_targets) * self.attentions(base.config)
        assert all(value.abs().sum() > 0 for value in up), "an adapter was bypassed"
        with torch.no_grad():
            after = prediction(peft_head, model(**inputs))
        assert (after - before).abs().max() > 1e-3

        model.save_pretrained(tmp_path / "adapter")
        stored = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
        assert stored["task_type"] == peft_head.task_type
        again = peft.PeftModel.from_pretrained(
            peft_head.cls.from_pretrained(tmp_path / "base"), tmp_path / "adapter"
        ).eval()
        direct = peft_head.cls.from_pretrained(tmp_path / "adapter").eval()
        with torch.no_grad():
            assert_same(prediction(peft_head, again(**inputs)), after, 1e-6)
            merged = again.merge_and_unload()
            assert_same(prediction(peft_head, merged(**inputs)), after, 1e-5)
            if peft_head.kind == "vocabulary":  # the others keep their new head beside the adapter, for PEFT alone
                assert_same(prediction(peft_head, direct(**inputs)), after, 1e-6)
        merged.save_pretrained(tmp_path / "merged")
        loaded, info = peft_head.cls.from_pretrained(tmp_path / "merged", output_loading_info=True)
        assert not info["missing_keys"]
        with torch.no_grad():
            assert_same(prediction(peft_head, loaded(**inputs)), after, 1e-5)

    def test_fusing_bypasses_no_adapter(self, compiled: bool) -> None:
        head = next(head for head in self.heads if head.task_type is not None)
        torch._dynamo.reset()
        model, batch = self.adapted(head), self.labelled(head)
        with torch.no_grad():
            for name, value in model.named_parameters():
                if "lora_B" in name:
                    value.normal_()
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        loss = run(**batch).loss
        loss.backward()
        for name, value in model.named_parameters():
            if "lora_" in name:
                assert value.grad.abs().sum() > 0, name
        with torch.no_grad(), model.disable_adapter():
            assert abs(model(**batch).loss - loss) > 1e-3
        torch._dynamo.reset()

    def test_fusing_bypasses_no_hook(self) -> None:
        """Whatever is attached to a projection still runs: hooks, replaced forwards, parametrisations."""
        head = self.head("encoder")
        inputs = self.inputs(head)
        with torch.no_grad():
            expected = prediction(head, self.model(head)(**inputs))
        doubled = self.model(head)

        def queries(model: nn.Module) -> list[nn.Module]:
            return [module for name, module in model.named_modules() if name.endswith(self.query_name)]

        with torch.no_grad():
            for query in queries(doubled):
                query.weight.mul_(2)
                query.bias.mul_(2)
            twice = prediction(head, doubled(**inputs))
        assert (twice - expected).abs().max() > 1e-3

        class Double(nn.Module):
            def forward(self, value: torch.Tensor) -> torch.Tensor:
                return 2 * value

        def by_hook(query: nn.Linear) -> None:
            query.register_forward_hook(lambda module, args, output: 2 * output)

        def by_pre_hook(query: nn.Linear) -> None:
            with torch.no_grad():
                query.bias.mul_(2)
            query.register_forward_pre_hook(lambda module, args: (2 * args[0],))

        def by_forward(query: nn.Linear) -> None:
            original = query.forward
            query.forward = lambda value: 2 * original(value)

        def by_parametrisation(query: nn.Linear) -> None:
            nn.utils.parametrize.register_parametrization(query, "weight", Double())
            nn.utils.parametrize.register_parametrization(query, "bias", Double())

        for attach in (by_hook, by_pre_hook, by_forward, by_parametrisation):
            model = self.model(head)
            for query in queries(model):
                attach(query)
            with torch.no_grad():
                assert_same(prediction(head, model(**inputs)), twice, 1e-5, attach.__name__)

        fired: list[str] = []
        model = self.model(head)
        for query in queries(model):
            query.register_full_backward_hook(lambda module, gin, gout: fired.append("backward"))
        prediction(head, model(**inputs)).sum().backward()
        assert len(fired) == len(queries(model)) > 0


def generated_case(model: nn.Module, inputs: dict[str, torch.Tensor], arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `generate`, and what comes out here, where the checkpoint's own decoding is the package's."""
    names = ("input_ids", "attention_mask", "langs", "decoder_langs")
    prompt = {name: inputs[name] for name in names if name in inputs}
    arguments = {**prompt, "max_new_tokens": 5, "do_sample": False, **arguments}
    here = {name: value for name, value in arguments.items() if name not in ("custom_generate", "trust_remote_code")}
    return {"arguments": arguments, "sequences": model.generate(**here)}


class RemoteChecks(FamilyCase):
    def test_the_auto_map_is_the_registration(self) -> None:
        from hf_ptm_ext.registration import FAMILIES

        family = next(family for family in FAMILIES if family.model_type == self.config_class.model_type)
        assert family.models == {
            auto: head.cls.__name__
            for head in self.heads
            if not head.variant
            for auto in (head.auto_class, *head.also)
        }
        variants = {(head.auto_class, head.cls.__name__) for head in self.heads if head.variant}
        assert set(family.model_classes()) == {*family.models.items(), *variants}
        assert family.config == self.config_class.__name__
        expected = {name: f"modeling_{family.model_type}.{cls}" for name, cls in family.models.items()}
        expected["AutoConfig"] = f"configuration_{family.model_type}.{family.config}"
        assert self.base_class._auto_map == expected

    def test_auto_classes_give_our_classes(self) -> None:
        import transformers

        for head in self.heads:
            config = self.config(head)
            if head.variant:
                config.architectures = [head.cls.__name__]
            for auto_class in (head.auto_class, *head.also):
                assert type(getattr(transformers, auto_class).from_config(config)) is head.cls

    def test_checkpoints_carry_all_code(self, head: Head, tmp_path: Path) -> None:
        self.model(head).save_pretrained(tmp_path)
        stored = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["auto_map"]
        own = {head.auto_class: f"{head.cls.__module__.rpartition('.')[2]}.{head.cls.__name__}"}
        assert stored == {**head.cls._auto_map, **(own if head.variant else {})}
        for path in tmp_path.glob("*.py"):
            for name in re.findall(r"^\s*from\s+\.(\S+)\s+import", path.read_text(encoding="utf-8"), re.MULTILINE):
                assert (tmp_path / f"{name}.py").is_file(), f"{path.name} needs {name}.py"
        for target in stored.values():
            assert (tmp_path / f"{target.split('.')[0]}.py").is_file()

    def test_all_heads_in_a_process_without_the_package(self, tmp_path: Path) -> None:
        """Every head loads from folder and Hub id, gives the same outputs, re-saves completely, loads again."""
        jobs = []
        for head in self.heads:
            folder = tmp_path / head.cls.__name__
            model, inputs = self.model(head), self.inputs(head)
            model.save_pretrained(folder)
            with torch.no_grad():
                outputs = model(**inputs)
            case = {"inputs": inputs, "outputs": {name: outputs[name] for name in head.outputs}}
            if head.generates:
                case["generated"] = [generated_case(model, inputs, arguments) for arguments in self.remote_generation]
            torch.save(case, folder / "case.pt")
            autos = {"auto_class": head.auto_class, "also": head.also}
            jobs.append({"folder": str(folder), **autos, "class": head.cls.__name__})
            jobs[-1]["variant"] = head.variant
        (tmp_path / "jobs.json").write_text(json.dumps({"package": "hf_ptm_ext", "heads": jobs}), encoding="utf-8")
        result = subprocess.run(
            [sys.executable, str(FRESH_PROCESS), str(tmp_path)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=600,
            cwd=tmp_path,
            env={**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
        assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == [job["class"] for job in jobs]
