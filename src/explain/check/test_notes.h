#pragma once

// Notes for the tests of the check, in four languages, written for them. All of their numbers are
// right. What stands between ‹ and › is not checkable (a count in prose, a channel that no weight
// picks); the marks are taken out before a note is read.

#include <string>
#include <string_view>
#include <vector>

namespace qkv::check {

struct TestNote {
  std::string_view name;
  std::string_view text;
};

// Vietnamese: a dot product, then self-attention without weights, in code and brackets.
inline constexpr std::string_view kJourneyNote = R"(# Cơ chế chú ý, bắt đầu từ tích vô hướng

Lấy hai vectơ Q = [1, 2, 3] và K = [2, 1, 0]. Nhân từng phần tử rồi cộng lại:

    Q·K = 1*2 + 2*1 + 3*0 = 2 + 2 + 0 = 4

Khi có hai key, K = [[2, 1, 0], [1, 2, 3]] → scores = [[4, 14]].

## Tự chú ý đơn giản nhất

Ma trận X, mỗi từ một hàng:

```
"Your"    [0.4 0.1 0.8]
"journey" [0.5 0.8 0.6]
"starts"  [0.5 0.8 0.6]
```

Điểm số của mọi cặp từ:

```
[0.81 0.76 0.76]
[0.76 1.25 1.25]
[0.76 1.25 1.25]
```

Ví dụ `scores[‹0›][‹1›] = 0.4*0.5 + 0.1*0.8 + 0.8*0.6 = 0.20 + 0.08 + 0.48 = 0.76`.

Sau softmax ta được trọng số chú ý:

| | Your | journey | starts |
|---|---|---|---|
| Your | 0.3445 | 0.3277 | 0.3277 |
| journey | 0.2345 | 0.3828 | 0.3828 |
| starts | 0.2345 | 0.3828 | 0.3828 |

Kết quả Z = trọng số · X:

```
Z = [0.4655 0.5588 0.6689]
    [0.4766 0.6359 0.6469]
    [0.4766 0.6359 0.6469]
```
)";

// Vietnamese: four pixels, matrices side by side, products written out.
inline constexpr std::string_view kPixelsNote = R"(# Bốn điểm ảnh thành Q, K, V

Ảnh ‹2×2›, N = 4, B = 1, num_heads = 1, key_dim = 2, head_dim = 2.

    X = p‹0› [1 0 1 ‹2›]    Wq = [1 0]   Wk = [0 1]   Wv = [0 0]
        p‹1› [2 1 0 ‹2›]         [0 0]        [1 0]        [0 1]
        p‹2› [3 0 1 ‹2›]         [0 1]        [0 0]        [1 0]
        p‹3› [4 1 0 ‹2›]         [0 0]        [0 0]        [0 0]

Nhân vào thì có

    Q = [1 1]   K = [0 1]   V = [1 0]
        [2 0]       [1 2]       [0 1]
        [3 1]       [0 3]       [1 0]
        [4 0]       [1 4]       [0 1]

Viết ra cho p‹0›:

- `[1,0,1,2]·Wq → 1*1+0*0+1*0+2*0, 1*0+0*0+1*1+2*0 = [1, 1]`
- `K(p‹0›) = [1*0+0*1+1*0+2*0, 1*1+0*0+1*0+2*0] = [0, 1]`

Đầu ra qkv (1, 6, 2, 2), tách ra thành Q (1, 1, 2, 4), K (1, 1, 2, 4), V (1, 1, 2, 4).

    scores (÷√2)                              weights                                  out
    0.707107 2.121320 2.121320 3.535534       0.038248 0.157323 0.157323 0.647107      0.195570 0.804430
    0        1.414214 0        1.414214       0.097785 0.402215 0.097785 0.402215      0.195570 0.804430
    0.707107 3.535534 2.121320 4.949747       0.010914 0.184656 0.044893 0.759537      0.055807 0.944193
    0        2.828427 0        2.828427       0.027904 0.472096 0.027904 0.472096      0.055807 0.944193
)";

// Vietnamese: sizes by formulas.
inline constexpr std::string_view kChannelsNote = R"(# Vì sao ‹4› kênh thành ‹8›

Đầu vào (B=1, C=4, H=3, W=3), dim = 4, num_heads = 2, attn_ratio = 0.‹5›.

```python
head_dim = dim // num_heads           = 2
key_dim  = int(head_dim * attn_ratio) = 1
nh_kd    = key_dim * num_heads        = 2
h        = dim + nh_kd * 2            = 8
```

Vậy qkv output (1, 8, 3, 3) = 2 Q + 2 K + 4 V.
)";

// Korean: shapes of a ViT, and a small table.
inline constexpr std::string_view kVitNote = R"(# ViT의 Q, K, V

x: [B, N, 768] 이고 토큰마다 ‹768›개의 수가 있다. N = 14 * 14 + 1 = 197, B = 1.

```python
qkv.shape → [1, 197, 2304]          # 768 * 3 = 2304
qkv.reshape(1, 197, 3, 12, 64) → [1, 197, 3, 12, 64]
q.shape = torch.Size([1, 12, 197, 64])
k.shape = torch.Size([1, 12, 197, 64])
attn.shape = [1, 12, 197, 197]
```

head_dim = 768 / 12 = 64.

## 작은 예

입력 X:

| 토큰 | c‹0› | c‹1› |
|---|---|---|
| 나 | 0.2 | 0.5 |
| 너 | 0.9 | 0.1 |

점수 = X·Xᵀ:

| | 나 | 너 |
|---|---|---|
| 나 | 0.29 | 0.23 |
| 너 | 0.23 | 0.82 |

어텐션 가중치:

| | 나 | 너 |
|---|---|---|
| 나 | 0.515 | 0.485 |
| 너 | 0.357 | 0.643 |

출력 Z:

```
[[0.540, 0.306],
 [0.650, 0.243]]
```
)";

// Chinese: shapes of multi-head attention, and LaTeX.
inline constexpr std::string_view kHeadsNote = R"(# 多头注意力

d_model = 512，h = 8，d_k = d_v = d_model / h = 64。例如 B = 32，T = 20。

| 步骤 | 张量 | 形状 |
|---|---|---|
| 输入 | X | B × T × d_model = 32×20×512 |
| 投影 | Q | B × T × d_model = 32×20×512 |
| 分数 | scores | B × h × T × T = 32×8×20×20 |
| 权重 | weights | B × h × T × T = 32×8×20×20 |
| 头 | Z | B × h × T × d_k = 32×8×20×64 |

拼接之后 h·d_k = 512。

## 一个小例子

$$Q = \begin{bmatrix} 1 & 2 \\ 3 & 1 \end{bmatrix}, K = \begin{bmatrix} 2 & 0 \\ 1 & 1 \end{bmatrix}, V = \begin{bmatrix} 1 & 0 \\ 0 & 2 \end{bmatrix}$$

分数：

$$Q K^T = \begin{bmatrix} 2 & 3 \\ 6 & 4 \end{bmatrix}$$

除以 $\sqrt{‹2›}$ 再做 softmax，注意力权重为

$$\begin{bmatrix} 0.3302 & 0.6698 \\ 0.8044 & 0.1956 \end{bmatrix}$$

输出 Z：

$$\begin{pmatrix} 0.3302 & 1.3395 \\ 0.8044 & 0.3911 \end{pmatrix}$$
)";

// English: Python literals and causal attention.
inline constexpr std::string_view kCausalNote = R"(# Causal attention by hand

```python
X = np.array([[1, 2],   # I
              [0, 1],   # am
              [2, 1]])  # here
W_q = torch.tensor([[1, 0], [1, 1]])
W_k = torch.tensor([[0, 1], [1, 0]])
W_v = torch.tensor([[2, 1], [0, 1]])

Q = X @ W_q
# tensor([[3, 2],
#         [1, 1],
#         [3, 1]])
```

The keys and values:

K = [[2, 1], [1, 0], [1, 2]] and V = [[2, 3], [0, 1], [4, 3]]

The attention scores are

    [[8 3 7]
     [3 1 3]
     [7 3 5]]

and divided by the root of the width, with later tokens hidden:

```
scaled = [[5.6569,   -inf,   -inf],
          [2.1213, 0.7071,   -inf],
          [4.9497, 2.1213, 3.5355]]
weights = [[1,      0,      0],
           [0.8044, 0.1956, 0],
           [0.7679, 0.0454, 0.1867]]
```

So the first context vectors are

```
z_‹1› = [2.0000, 3.0000]
z_‹2› = [1.6089, 2.6089]
z_‹3› = [2.2826, 2.9092]
```

For instance Q[‹0›][‹0›] = 1*1 + 2*1 = 3 and √4 = 2.
)";

inline std::vector<TestNote> test_notes() {
  return {{"journey", kJourneyNote}, {"pixels", kPixelsNote}, {"channels", kChannelsNote},
          {"vit", kVitNote},         {"heads", kHeadsNote},   {"causal", kCausalNote}};
}

// The note itself, and for each of its bytes whether it is checkable.
struct Unmarked {
  std::string text;
  std::vector<bool> checkable;
};
inline Unmarked unmark(std::string_view note) {
  Unmarked result;
  bool checkable = true;
  for (std::size_t i = 0; i < note.size(); ++i) {
    if (note.substr(i).starts_with("‹") || note.substr(i).starts_with("›")) {
      checkable = note.substr(i).starts_with("›");
      i += 2;
      continue;
    }
    result.text += note[i];
    result.checkable.push_back(checkable);
  }
  return result;
}

}  // namespace qkv::check
