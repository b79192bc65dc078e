"""Q8BERT's linear layer by the rules that its golden states, in plain torch: whole numbers and no gradients."""


class Reference:
    """A layer with weights, and the thresholds that it has seen."""

    def __init__(self, weight, bias, bits=8, mode="ema", decay=0.9999, start=0, requantize=True):
        self.weight, self.bias, self.levels = weight, bias, 2 ** (bits - 1) - 1
        self.mode, self.decay, self.start, self.requantize = mode, decay, start, requantize
        self.step, self.thresholds = 0, {}

    def grid(self, values, threshold):
        scale = self.levels / threshold
        return (values * scale).round().clamp(-self.levels, self.levels), scale

    def threshold(self, name, values, training):
        largest = values.abs().max()
        if self.mode == "dynamic":
            return largest
        if training:
            first = self.step == self.start
            old = self.thresholds.get(name)
            self.thresholds[name] = largest if first else old - (1 - self.decay) * (old - largest)
        return self.thresholds[name]

    def train(self, values):
        if self.mode == "none" or self.step < self.start:
            self.step += self.mode != "none"
            return values @ self.weight.T + (0 if self.bias is None else self.bias)
        whole, scale = self.grid(values, self.threshold("input", values, True))
        weight, weight_scale = self.grid(self.weight, self.weight.abs().max())
        output = (whole / scale) @ (weight / weight_scale).T + (0 if self.bias is None else self.bias)
        if self.requantize:
            whole, scale = self.grid(output, self.threshold("output", output, True))
            output = whole / scale
        self.step += 1
        return output

    def evaluate(self, values):
        if self.mode == "none":
            return values @ self.weight.T + (0 if self.bias is None else self.bias)
        whole, scale = self.grid(values, self.threshold("input", values, False))
        weight, weight_scale = self.grid(self.weight, self.weight.abs().max())
        both = scale * weight_scale
        total = whole.double() @ weight.double().T + (0 if self.bias is None else (self.bias * both).round().double())
        output = (total / both).float()
        if self.requantize:
            whole, scale = self.grid(output, self.threshold("output", output, False))
            output = whole / scale
        return output
